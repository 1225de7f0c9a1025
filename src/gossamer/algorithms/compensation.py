"""The delay-compensated gradient: an estimate of a late neighbour's steps since it sent its message.

Paper, Eq. (2), with the sum over r outside as in the appendix:

    g_dc_k = sum_{r=0}^{tau-1} [ v_k + h_k * (x_i(t - tau + r) - x_i(t - tau)) ],     h_k = lam g_k * g_k

The displacement is the receiver's own and the same for every sender k, so it leaves the weighted sum over k. Two
products and one window sum suffice for any tau:

    sum_k w_ik g_dc_k = tau (W' v)_i + (W' h)_i * drift_i,     drift_i = sum_r x_i(t - tau + r) - tau x_i(t - tau)

The terms are the sender's steps. Where agents differ in speed, sender k has taken n_ik of them while the receiver took
tau. Then the sum has n_ik terms, with the mean displacement of the receiver over its tau steps:

    g_dc_ik = n_ik [ v_k + h_k * drift_i / tau ]
"""

import functools
from dataclasses import dataclass, replace

import torch

from gossamer.algorithms.base import Algorithm, Late, Own, Past
from gossamer.algorithms.options import NOT_NEGATIVE, option
from gossamer.errors import UserError
from gossamer.network import LinkMatrix
from gossamer.shapes import Float, Int, Tensor


def geometric_sum(q: Float[Tensor, "*shape"], terms: int | float | Float[Tensor, "..."]) -> Float[Tensor, "*shape"]:
    """Return sum_{j < terms} (1 - q)^j for q >= 0, accurate when q is tiny."""
    small = q.clamp(min=1e-30, max=0.5)
    by_logarithm = -torch.expm1(terms * torch.log1p(-small)) / small
    by_power = (1 - (1 - q) ** terms) / q.clamp(min=0.5)
    return torch.where(q < 0.5, by_logarithm, by_power)


def by_link(factor: int | float | LinkMatrix) -> int | float | Float[Tensor, "e 1"]:
    """Return a factor in the form that multiplies a row for each link."""
    return factor.values[:, None] if isinstance(factor, LinkMatrix) else factor


def _of_equal_steps(late: Late) -> list[Late]:
    """Return the messages in groups whose senders have taken as many steps, which then count as the age."""
    if late.sender_steps is None:
        return [late]
    steps, weights = late.sender_steps.values, late.weights
    found = steps[weights.values != 0].unique().tolist() or [0]
    return [replace(late, age=int(n), weights=weights.on(steps == n), sender_steps=None) for n in found]


@dataclass(frozen=True, kw_only=True)
class Compensated(Algorithm):
    """Base of the rules that predict: the options and the sum of the delay-compensated gradient."""

    lam: float = option(
        1.0, "lambda, the weight of the curvature term; the paper tries 0.001, 0.1 and 1", within=NOT_NEGATIVE
    )
    lam_form: str = option(
        "linear",
        "curvature term h: linear = lam g*g, squared = (lam g)*(lam g) as in the appendix, adaptive = "
        "lam g*g / sqrt(g*g + 1e-7)",
        choices=("linear", "squared", "adaptive"),
    )
    horizon: str = option(
        "sum",
        "terms r of the sum: sum (all), mean, last (r = tau-1), none (no compensation), "
        "public-code (curvature times x_i(t) - x_i(t-tau), no first-order term)",
        choices=("sum", "mean", "last", "none", "public-code"),
    )
    self_consistent: bool = option(
        False, "use the sender's predicted displacement, in closed form, instead of the receiver's"
    )
    curvature: str = option(
        "loss",
        "gradient to square: loss = without weight decay and momentum, coupled = the sent direction",
        choices=("loss", "coupled"),
    )
    source: str = option(
        "sent",
        "who computes the late gradient: sent = the neighbour (twice the traffic), "
        "recompute = the receiver, on its own batch (one more backward pass per late neighbour)",
        choices=("sent", "recompute"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.self_consistent and self.horizon != "sum":
            raise UserError(f"self_consistent sums over the whole delay, got horizon={self.horizon}; use horizon=sum")

    @property
    def message(self) -> tuple[str, ...]:
        """The state, the direction, and the loss gradient if the curvature needs it."""
        if self.horizon == "none" or self.source == "recompute":
            return ("x",)
        first_order = () if self.horizon == "public-code" else ("v",)
        second_order = ("g" if self.curvature == "loss" else "v",) if self.lam else ()
        return tuple(dict.fromkeys(("x", *first_order, *second_order)))

    @property
    def past(self) -> Past:
        """The window sum, only if the horizon sums over it."""
        if not self.lam or self.horizon == "none" or self.self_consistent:
            return Past.NONE
        return Past.WINDOW if self.horizon in ("sum", "mean") else Past.STATE

    @property
    def uses_sender_steps(self) -> bool:
        """If the sum has a term for each of them."""
        return self.horizon == "sum"

    @property
    def needs(self) -> frozenset[str]:
        """With source=recompute, a gradient at the neighbour's state."""
        recompute = self.source == "recompute" and self.horizon != "none"
        return super().needs | ({"gradient"} if recompute else set())

    def check_local(self, *, plain: bool) -> None:
        super().check_local(plain=plain)
        if self.source == "recompute" and not plain:
            raise UserError(
                "source=recompute cannot know the neighbour's momentum or weight decay; set both to 0, or source=sent"
            )

    def compensation(self, own: Own, late: Late) -> Float[Tensor, "a d"] | None:
        """Return sum_k w_ik g_dc_k over the messages of one age, or None without compensation."""
        if self.horizon == "none" or (self.horizon == "public-code" and not self.lam):
            return None
        if self.self_consistent:  # a closed form for each number of steps, without the receiver's displacement
            sums = [self._weighted_sums(own, part)[0] for part in _of_equal_steps(late)]
            return functools.reduce(torch.add, sums)
        first, curvature = self._weighted_sums(own, late)
        total = None if self.horizon == "public-code" else first
        if curvature is None:
            return total
        displacement = self._displacement(own, late)
        return curvature.mul_(displacement) if total is None else total.addcmul_(curvature, displacement)

    def _weighted_sums(self, own: Own, late: Late) -> tuple[Float[Tensor, "a d"], Float[Tensor, "a d"] | None]:
        """Return the weighted sums over the senders of the first-order term and of the curvature h."""
        # Constant factors multiply the weights, which are small.
        w, w_h = self._first_factor(late) * late.weights, self._curvature_factor(late) * late.weights
        if self.source == "sent":
            v = late.message.get("v", late.message.get("g"))
            assert v is not None
            first, h = self._sender_terms(v, late.message.get("g", v), own.lr, late.age)
            return w @ first, None if h is None else w_h @ h
        first_sum, h_sum = torch.zeros_like(own.x), torch.zeros_like(own.x) if self._uses_h else None
        assert own.evaluate is not None
        for sender in late.weights.any(dim=0).nonzero()[:, 0].tolist():
            g = own.evaluate.gradient(late.message["x"][sender].expand_as(own.x))
            first, h = self._sender_terms(g, g, own.lr, late.age)
            first_sum = first_sum + w.column(sender)[:, None] * first
            if h_sum is not None and h is not None:
                h_sum = h_sum + w_h.column(sender)[:, None] * h
        return first_sum, h_sum

    def each_compensation(self, own: Own, late: Late, columns: Int[Tensor, " m"]) -> Float[Tensor, "e m"] | None:
        """Return g_dc of each link's sender for its receiver at some parameters, or None without compensation."""
        if self.horizon == "none" or (self.horizon == "public-code" and not self.lam):
            return None
        sent = late.message.get("v", late.message.get("g"))
        assert sent is not None
        links = late.weights.links
        v, g = sent[:, columns][links.senders], late.message.get("g", sent)[:, columns][links.senders]
        first, h = self._sender_terms(v, g, own.lr, by_link(late.steps))
        first = (0 if self.horizon == "public-code" else by_link(self._first_factor(late))) * first
        if h is None:
            return first
        displacement = self._displacement(own, late)[:, columns]
        return first + by_link(self._curvature_factor(late)) * h * displacement[links.receivers]

    @property
    def _uses_h(self) -> bool:
        return self.lam > 0 and not self.self_consistent

    def _first_factor(self, late: Late) -> int | LinkMatrix:
        return late.steps if self.horizon == "sum" and not self.self_consistent else 1

    @property
    def _weight_of_h(self) -> float:
        return self.lam**2 if self.lam_form == "squared" else self.lam

    def _curvature_factor(self, late: Late) -> float | LinkMatrix:
        if self.horizon != "sum" or late.sender_steps is None:
            return self._weight_of_h
        return late.sender_steps * (self._weight_of_h / late.age)

    def _sender_terms(
        self, v: Float[Tensor, "m d"], g: Float[Tensor, "m d"], lr: float, steps: int | float | Float[Tensor, "m 1"]
    ) -> tuple[Float[Tensor, "m d"], Float[Tensor, "m d"] | None]:
        """Return each sender's terms without factors: the first-order term, and h if a displacement multiplies it."""
        squared = self._curvature(g if self.curvature == "loss" else v) if self.lam else None
        if not self.self_consistent:
            return v, squared
        q = torch.zeros_like(v) if squared is None else lr * self._weight_of_h * squared
        return v * geometric_sum(q, steps), None

    def _curvature(self, g: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        """Return h / lam, the diagonal estimate of the Hessian."""
        square = g * g
        return square / torch.sqrt(square + 1e-7) if self.lam_form == "adaptive" else square

    def _displacement(self, own: Own, late: Late) -> Float[Tensor, "a d"]:
        """Return the receiver's own displacement, summed over the horizon."""
        if self.horizon in ("sum", "mean"):
            assert late.drift is not None
            return late.drift if self.horizon == "sum" else late.drift / late.age
        assert late.own_x is not None
        if self.horizon == "public-code":
            return own.x - late.own_x
        assert own.previous is not None
        return own.previous - late.own_x
