"""The rules that the paper, or a user, would compare with: one file per rule."""

# Tables show the rules in this order: totals and tracking, parameter servers, peers.
from gossamer.algorithms.rivals import sgp, dga, dsgt, r_fast  # isort: skip  # noqa: F401
from gossamer.algorithms.rivals import asgd, dc_asgd, dasgd_is, gap_aware, delay_adaptive, delayed_nesterov  # isort: skip  # noqa: F401
from gossamer.algorithms.rivals import ad_psgd, local_sgd, swift, feddelavg, diloco, dc_s3gd, adaptive_braking, cdmsgd  # isort: skip  # noqa: F401
