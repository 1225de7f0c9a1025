"""Local SGD (Stich 2019): agents train alone and average every H steps; late models are merged as differences.

    x_i(t+1) = x_i(t) + sum of kappa w_ij (x_j(s) - x_i(s)) - eta v_i(t)
    kappa    = 1 / (1 + floor((t - s) / H))

The sum is over the messages that arrive at step t; s is the step at which they were sent, a multiple of H. Without
delay s = t, so agents average exactly every H steps, as published. With B(s) the average of step s and b(s) the agent's
own part of it, a delay below H gives x + B(s) - b(s), the merge of overlapped local SGD (CoCoD-SGD, Shen et al. 2019)
and of hivemind's delta rule. A message that is older than H meets others under way, and kappa divides by their number:
with kappa = 1 a disagreement would grow (matched.py).

merge=average replaces by the late models as they are: x_i(t) + sum of w_ij (x_j(s) - x_i(t)).
"""

from dataclasses import dataclass

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Past, Update, Weights
from gossamer.algorithms.options import PERIOD, option
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import add_product
from gossamer.network import LinkMatrix
from gossamer.shapes import Float, Tensor


@register("local-sgd")
@dataclass(frozen=True, kw_only=True)
class LocalSgd(Algorithm):
    """Local SGD: sends only every H steps and merges what arrives."""

    origin = "adapted"
    revision = 2

    every: int = option(8, "H, steps between two averagings", within=PERIOD)
    merge: str = option(
        "delta",
        "what a message of step s adds: delta = its difference to the agent's model of step s, average = its "
        "difference to the agent's current model",
        choices=("delta", "average"),
    )

    @property
    def period(self) -> int:
        return self.every

    @property
    def past(self) -> Past:
        """The own model of the step at which a late message was sent."""
        return Past.STATE if self.merge == "delta" else Past.NONE

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Merge the messages that arrived, then take a local step."""
        assert inbox.new is not None
        x = own.x.clone()
        delta = self.merge == "delta"
        _merge(x, weights.fresh * inbox.new, inbox.fresh, inbox.own["x"] if delta else own.x)
        for late in inbox.late:
            assert late.new is not None
            kappa = 1 / (1 + late.age // self.every) if delta else 1.0
            _merge(x, kappa * late.weights * late.new, late.message["x"], late.own["x"] if delta else own.x)
        return Update(self.descend(own, x))


def _merge(
    x: Float[Tensor, "a d"], weights: LinkMatrix, heard: Float[Tensor, "n d"], own: Float[Tensor, "a d"]
) -> None:
    """Add sum_j w_ij (heard_j - own_i) to x in place."""
    add_product(x, weights, heard)
    x.addcmul_(weights.sum(dim=1)[:, None], own, value=-1)
