#!/usr/bin/env bash
# The paper's 8 agents (clusters of 3 and 5, delay 20 between them) on the digits: first as 8 processes on this machine,
# which run freely, then in the simulator. It takes a minute or two on two cores.
set -euo pipefail
run=(gossamer train --task digits --network paper-1 --delay 20 --algorithm pc-asgd --theta 0.3 --lr 0.1 --epochs "${EPOCHS:-30}")
"${run[@]}" --engine processes "$@"
"${run[@]}" "$@"
