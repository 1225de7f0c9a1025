"""DSGT, gradient tracking (Di Lorenzo and Scutari 2016; Nedić, Olshevsky and Shi 2017), by matched differences.

    y_i(t)   = [M y(t-1)]_i + v_i(t) - v_i(t-1),    y_i(0) = v_i(0)
    x_i(t+1) = [M x(t)]_i - eta [M y(t)]_i

M is the mixing of matched.py; without late messages it is W. The tracker y_i follows the mean of all agents'
directions: if the columns of M sum to one, the mean of y equals the mean of v at every step. An agent keeps only
o_i = [M y]_i - v_i, so that y_i(t+1) = v_i(t+1) + o_i.
"""

from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Inbox, Noise, Own, Place, Update, Weights
from gossamer.algorithms.matched import Matched
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import mix_reliable
from gossamer.shapes import Float, Tensor


@register("dsgt", "gradient-tracking")
@dataclass(frozen=True, kw_only=True)
class Dsgt(Matched):
    """DSGT: gradient tracking; states and trackers are mixed by matched differences."""

    origin = "adapted"
    sends_gradient = True

    @property
    def message(self) -> tuple[str, ...]:
        return ("x", "y")

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        """The first tracker is the first direction."""
        return {"offset": torch.zeros_like(x)}

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        """Return the tracker of this step."""
        return {"y": own.v + own.state["offset"]}

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Mix states and trackers, and descend along the mixed tracker."""
        y = self.mix(own, inbox, weights, "y")
        x = mix_reliable(own, inbox, weights)
        self.add_differences(x, own, inbox, "x")
        return Update(x.sub_(y, alpha=own.lr), state={"offset": y.sub_(own.v)})
