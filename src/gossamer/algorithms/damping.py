"""The damping of an agent's deviation from its own trend, which does not slow a steady drift.

    m_i(t) = m_i(t-1) + (x_i(t) - m_i(t-1)) / (1 + L)       n_i(t) = n_i(t-1) + (m_i(t) - n_i(t-1)) / (1 + L)
    x_i(t+1) = [a rule's] - psi (x_i(t) - (2 m_i(t) - n_i(t)))

The trend 2 m - n, double exponential smoothing (Brown 1956), follows a steady drift without lag.
"""

from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Algorithm, Own
from gossamer.shapes import Float, Tensor


@dataclass(frozen=True, kw_only=True)
class Damped(Algorithm):
    """Base of the rules that can damp."""

    damping: float
    lag: float

    def smoothed(self, own: Own) -> dict[str, Tensor]:
        """Return the next values of the smoothed paths that the rule keeps."""
        share, paths, path = 1 / (1 + self.lag), {}, own.x
        for name in ("smooth", "smoother"):
            if name in own.state:
                path = paths[name] = torch.lerp(own.state[name], path, share)
        return paths

    def damp(self, x: Float[Tensor, "a d"], own: Own, paths: dict[str, Tensor]) -> None:
        """Remove a share of the agents' deviation from their trend from x, in place."""
        x.sub_(own.x - 2 * paths["smooth"] + paths["smoother"], alpha=self.damping)
