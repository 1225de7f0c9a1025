"""DiLoCo (Douillard et al. 2023) with eager updates (Kale et al. 2025). Each cluster is an island.

Inner steps mix inside the island, over its current links:

    x_i(t+1) = sum_j w~_ij x_j(t) - eta v_i(t)

Outer steps exchange progress between islands, at positive multiples of H. With Delta_i = A_i - x_i(t), the displacement
from the anchor A_i,

    Delta_bar_i = (w_ii Delta_i + the island's w_ij Delta_j) + sum of w_ik Delta_k that arrived from other islands
    M_i <- mu M_i + Delta_bar_i
    A_i <- A_i - outer_lr (mu M_i + Delta_bar_i),    x_i(t+1) = A_i - eta v_i(t)

Messages contain running totals of Delta (totals.py), so each Delta counts once, in the round of its arrival. mode=eager
uses the island's own part at once, mode=delayed one outer step later. The weights w are those of W, or of (I + W) / 2
if W has a negative eigenvalue: an outer step multiplies a disagreement of the anchors by 1 - c times an eigenvalue,
c > 0, so it would grow.
"""

import dataclasses
import functools
from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Place, Update, Weights
from gossamer.algorithms.options import FRACTION, PERIOD, POSITIVE, option
from gossamer.algorithms.registry import register
from gossamer.algorithms.rivals.totals import heard_total
from gossamer.algorithms.steps import mix_reliable
from gossamer.network import LinkMatrix, Network, end_of_spectrum
from gossamer.shapes import Float, Tensor

ROUNDING = 1e-9  # rounding error of a zero eigenvalue; a complete graph has many


@register("diloco")
@dataclass(frozen=True, kw_only=True)
class DiLoCo(Algorithm):
    """DiLoCo: clusters train alone and exchange their progress every H steps."""

    origin = "adapted"

    every: int = option(20, "H, steps between two exchanges of the clusters", within=PERIOD)
    outer_lr: float = option(0.7, "learning rate of the exchange", within=POSITIVE)
    outer_momentum: float = option(0.9, "mu, Nesterov momentum of the exchange", within=FRACTION)
    mode: str = option(
        "eager",
        "use the progress of the agent's own cluster at once, or one exchange later",
        choices=("eager", "delayed"),
    )

    @property
    def message(self) -> tuple[str, ...]:
        """Inside an island, the model and the running total of displacements."""
        return ("x", "shift")

    @property
    def message_across(self) -> tuple[str, ...]:
        """Between islands, the total alone."""
        return ("shift",)

    @property
    def totals(self) -> frozenset[str]:
        return frozenset({"shift"})

    @property
    def period(self) -> int:
        return self.every

    @property
    def period_inside(self) -> int:
        return 1

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        """The anchors start at x."""
        nothing = torch.zeros_like(x, dtype=torch.float64)
        state = {"anchor": x.clone(), "momentum": torch.zeros_like(x)}
        state |= {"shift": nothing, "heard_inside": nothing, "heard_across": nothing}
        return state | ({"previous": nothing} if self.mode == "delayed" else {})

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        """Return the total, with this step's displacement if it is an outer step."""
        shift = own.state["shift"]
        return {"shift": shift + (own.state["anchor"] - own.x) if self._is_outer(own.t) else shift}

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        if self._is_outer(own.t):
            return self._outer(own, inbox, weights)
        return Update(self.descend(own, _mix_island(own, inbox, weights)), state=own.state)

    def _is_outer(self, t: int) -> bool:
        return t > 0 and t % self.every == 0

    def _outer(self, own: Own, inbox: Inbox, weights: Weights) -> Update:
        """Move the anchor along the displacements that arrived, and the agent to the anchor."""
        assert own.place is not None
        state, mu = own.state, self.outer_momentum
        kept, *shares = _shares(own.place.network, own.x.device)
        inside, across = (heard_total(inbox, weights, own.place.among(share), "shift") for share in shares)
        island = kept[own.place.agents] * (state["anchor"] - own.x) + (inside - state["heard_inside"])
        used = island if self.mode == "eager" else state["previous"]
        way = (used + (across - state["heard_across"])).to(own.x.dtype)
        momentum = mu * state["momentum"] + way
        anchor = state["anchor"] - self.outer_lr * (mu * momentum + way)
        state = {"anchor": anchor, "momentum": momentum, **own.sent, "heard_inside": inside, "heard_across": across}
        state |= {"previous": island} if self.mode == "delayed" else {}
        return Update(self.descend(own, anchor.clone()), state=state)


def _mix_island(own: Own, inbox: Inbox, weights: Weights) -> Float[Tensor, "a d"]:
    """Return the mixed models of the island; the agent keeps the weights of links that leave it."""
    assert own.place is not None
    _, inside, _ = _shares(own.place.network, own.x.device)
    fresh = weights.clip_fresh * (own.place.among(inside) != 0)
    island = dataclasses.replace(weights, clip_own=1 - fresh.sum(dim=1), clip_fresh=fresh)
    return mix_reliable(own, inbox, island)


@functools.lru_cache(maxsize=8)
def _shares(network: Network, device: torch.device) -> tuple[Tensor, LinkMatrix, LinkMatrix]:
    """Return the weights in float64: of the agent itself, of links inside islands, and of links between them."""
    own, weights = network.mixing_weights
    if end_of_spectrum(weights, own, largest=False) < -ROUNDING:
        own, weights = (1 + own) / 2, weights / 2
    inside, across = weights.on(network.spared_values), weights.on(~network.spared_values)
    return own[:, None].to(device), inside.to(device), across.to(device)
