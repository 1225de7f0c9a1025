"""SDM-ASGD, steady matched differences: DM-ASGD plus a damping of each agent's deviation from its own trend.

    m_i(t) = m_i(t-1) + (x_i(t) - m_i(t-1)) / (1 + L)       n_i(t) = n_i(t-1) + (m_i(t) - n_i(t-1)) / (1 + L)
    x_i(t+1) = [DM-ASGD's] - psi (x_i(t) - (2 m_i(t) - n_i(t)))

The trend 2 m - n, double exponential smoothing (Brown 1956), follows a steady drift without lag, so the pace stays eta.
In curved directions late messages are too old to reduce the gradient noise of the agent's own cluster; the damping
reduces it. psi = 0 is DM-ASGD. matched.py names the prior art of the exchange. The damping towards a trend without lag
is ours; Lookahead (Zhang et al. 2019) and elastic averaging (Zhang et al. 2015) pull towards averages that lag.
"""

from dataclasses import dataclass

from gossamer.algorithms.base import Inbox, Noise, Own, Place, Update, Weights
from gossamer.algorithms.damping import Damped
from gossamer.algorithms.dm_asgd import DmAsgd
from gossamer.algorithms.options import CLOSED, NOT_NEGATIVE, option
from gossamer.algorithms.registry import register
from gossamer.shapes import Float, Tensor


@register("sdm-asgd")
@dataclass(frozen=True, kw_only=True)
class SdmAsgd(Damped, DmAsgd):
    """SDM-ASGD: matched differences, plus a damping of each agent's deviation from its own trend."""

    origin = "ours"

    damping: float = option(
        0.2, "psi, the share of the deviation from the trend removed at each step; 0 is dm-asgd", within=CLOSED
    )
    lag: float = option(10.0, "L, the lag of each smoothed path, in steps", within=NOT_NEGATIVE)

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        """Both smoothed paths start at x."""
        return {"smooth": x.clone(), "smoother": x.clone()}

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return DM-ASGD's step minus a share of the deviation from the trend."""
        paths = self.smoothed(own)
        x = super().step(own, inbox, weights, noise).x
        self.damp(x, own, paths)
        return Update(x, state=paths)
