"""The Triton kernels, interpreted on the CPU, against the same layers written with torch's own operations."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("group", "count"), [("units", 15), ("dense blocks", 3), ("models", 3)])
def test_kernels_agree_with_the_definition(group, count):
    # Triton decides at import whether it interprets, so this is a program of its own.
    script = Path(__file__).with_name("kernel_cases.py")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, str(script), group], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" ok") == count
