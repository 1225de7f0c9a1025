"""How PC-ASGD predicts where a late neighbour k is now, from its message of tau steps ago.

| predictor | prediction of x_k(t)              | message | source of the displacement                       |
|-----------|-----------------------------------|---------|--------------------------------------------------|
| gradient  | x_k(s) - eta g_dc_k, s = t - tau  | x, v, g | the sender's gradient (paper, compensation.py)   |
| trend     | x_k(s) + n_ik d_k(s)              | x, d    | the sender's past steps, smoothed                |
| own       | x_k(s) + x_i(t) - x_i(s)          | x       | the receiver's own displacement                  |

n_ik is the number of steps that k has taken since s: tau, where all agents have the same speed. The first and second
prediction count them; the third one is the receiver's own.

The trend d_k(t) = (x_k(t) - m_k(t-1)) / (1 + L) is a mean of past displacements. m_k is a smoothed path that lags L
steps (damping.py). The trend stays bounded in curved directions, where tau times a gradient does not.
"""

from dataclasses import dataclass

from gossamer.algorithms.base import Late, Own, Past
from gossamer.algorithms.compensation import by_link
from gossamer.algorithms.damping import Damped
from gossamer.algorithms.options import CLOSED, NOT_NEGATIVE, option
from gossamer.algorithms.p_asgd import Predicting
from gossamer.algorithms.steps import add_product, scale_rows
from gossamer.errors import UserError
from gossamer.shapes import Float, Int, Tensor

PREDICTORS = ("gradient", "trend", "own")


@dataclass(frozen=True, kw_only=True)
class PredictorChoice(Predicting, Damped):
    """Base of a rule with a choice of predictors."""

    predictor: str = option(
        "gradient",
        "how a late neighbour moved on: its gradient (the paper), its trend (smoothed displacement), or as the agent "
        "itself (own)",
        choices=PREDICTORS,
        later=True,
    )
    damping: float = option(
        0.0, "psi, the share of the deviation from the trend removed at each step; 0 is none", within=CLOSED, later=True
    )
    lag: float = option(10.0, "L, the lag of each smoothed path, in steps", within=NOT_NEGATIVE, later=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.predictor != "gradient" and (self.source, self.horizon) != ("sent", "sum"):
            raise UserError(
                f"horizon={self.horizon} and source={self.source} belong to predictor=gradient, got "
                f"predictor={self.predictor}; leave them out"
            )

    @property
    def message(self) -> tuple[str, ...]:
        """The state, and what the predictor needs."""
        return {"gradient": super().message, "trend": ("x", "trend"), "own": ("x",)}[self.predictor]

    @property
    def past(self) -> Past:
        """For the agent's own displacement, its state of then."""
        return {"gradient": super().past, "trend": Past.NONE, "own": Past.STATE}[self.predictor]

    @property
    def uses_sender_steps(self) -> bool:
        """Unless the agent's own displacement is the prediction."""
        return {"gradient": super().uses_sender_steps, "trend": True, "own": False}[self.predictor]

    @property
    def paths_kept(self) -> tuple[str, ...]:
        """The smoothed paths that are kept, for the trend and for the damping."""
        return ("smooth", "smoother") if self.damping else ("smooth",) if self.predictor == "trend" else ()

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        """Return the trend, if it is sent."""
        if self.predictor != "trend":
            return {}
        return {"trend": (own.x - own.state["smooth"]) / (1 + self.lag)}

    def carry_forward(self, x: Float[Tensor, "a d"], own: Own, late: Late, share: Float[Tensor, " a"]) -> None:
        """Add the predicted displacement of late neighbours to x, in place."""
        if self.predictor == "gradient":
            super().carry_forward(x, own, late, share)
        elif self.predictor == "trend":
            weights, factor = late.weights, float(late.age)
            if late.sender_steps is not None:
                weights, factor = late.weights * late.sender_steps, 1.0
            add_product(x, scale_rows(share, weights), late.message["trend"], factor)
        else:
            assert late.own_x is not None
            heard = late.weights.sum(dim=1) * share
            x.addcmul_(heard[:, None], own.x - late.own_x)

    def predictions(self, own: Own, late: Late, columns: Int[Tensor, " m"]) -> Float[Tensor, "e m"]:
        """Return where each link's receiver predicts its sender to be now, at some parameters."""
        links = late.weights.links
        then = late.message["x"][:, columns][links.senders]
        if self.predictor == "trend":
            return then + by_link(late.steps) * late.message["trend"][:, columns][links.senders]
        if self.predictor == "own":
            assert late.own_x is not None
            return then + (own.x - late.own_x)[:, columns][links.receivers]
        moved = self.each_compensation(own, late, columns)
        return then if moved is None else then - own.lr * moved
