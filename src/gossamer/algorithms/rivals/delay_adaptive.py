"""Delay-adaptive ASGD: the server scales a gradient by its delay.

    c_k = s_k g_k
    mishchenko:   s = N / max(N, n_k)                              Mishchenko, Bach, Even and Woodworth 2022
    wu:           s = alpha max(0, 1 - S_k)                        Wu et al. 2022, Adaptive 1
    wu-2:         s = 1 / (1 + age_k) if that is at most 1 - S_k, else 0           ... Adaptive 2
    cutoff:       s = 1 if age_k <= limit, else 0                  Ringmaster ASGD (Maranjyan et al. 2025)
    inverse:      s = 1 / (1 + age_k)                              ours

Of the time since the server had the model at which worker k took g_k, age_k counts the steps and n_k the gradients
applied. S_k sums the server's steps in units of eta: each is the mean of s over the N agents. So S_k <= 1 bounds how
far the model moves within a delay. Workers return the server's three counters with each gradient.
"""

from dataclasses import dataclass, replace

import torch

from gossamer.algorithms.base import Own, Place
from gossamer.algorithms.options import COUNT, SHARE, option
from gossamer.algorithms.registry import register
from gossamer.algorithms.rivals.server import Pulled, Pushes, ServerBased
from gossamer.errors import UserError
from gossamer.shapes import Float, Tensor

RULES = ("mishchenko", "wu", "wu-2", "cutoff", "inverse")
COUNTERS = ("stamp", "applied", "moved")  # of the server: steps, gradients applied, sum of its scaled steps
ROUNDING = 1e-5  # of the sums that wu-2 compares, which may be equal


@register("delay-adaptive")
@dataclass(frozen=True, kw_only=True)
class DelayAdaptive(ServerBased):
    """Delay-adaptive ASGD: a server that scales gradients by their delay."""

    origin = "adapted"
    revision = 2

    rule: str = option(
        "mishchenko",
        "scale of a gradient: mishchenko = N/max(N, gradients applied since), wu = alpha (1 - steps taken since), "
        "wu-2 = 1/(1 + age) if the remaining budget allows it, else 0, cutoff = 1 up to the limit, "
        "inverse = 1/(1 + age)",
        choices=RULES,
    )
    alpha: float = option(0.9, "for rule=wu: the share of the allowed step that is taken", within=SHARE)
    limit: int = option(10, "for rule=cutoff: the largest age that counts, in steps", within=COUNT)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule not in RULES:
            raise UserError(f"unknown rule '{self.rule}' of delay-adaptive; use {', '.join(RULES)}")

    @property
    def message(self) -> tuple[str, ...]:
        return (*super().message, *COUNTERS)

    @property
    def numbers(self) -> frozenset[str]:
        return frozenset(COUNTERS)

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        return {**super().start(x, place), **{name: torch.zeros_like(x[:, :1]) for name in COUNTERS}}

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        return {name: own.state[name] for name in COUNTERS}

    def work(self, own: Own, pulled: Pulled) -> dict[str, Tensor]:
        """Keep the counters of the model that arrived."""
        return {name: pulled.take(name, own.state[name]) for name in COUNTERS}

    def serve(self, server: Own, pushes: list[Pushes]) -> tuple[Float[Tensor, "1 d"], dict[str, Tensor]]:
        """Scale every gradient by its delay; the server's own model has none."""
        assert server.place is not None
        agents, state = server.place.network.num_agents, server.state
        scaled = [replace(each, weights=each.weights * self._scale(server, each, agents)) for each in pushes]
        w, kept = super().serve(server, scaled)
        arrived, moved = (torch.stack([each.weights.sum() for each in of]).sum() for of in (pushes, scaled))
        kept |= {
            "stamp": torch.full_like(state["stamp"], server.t + 1),
            "applied": state["applied"] + arrived,
            "moved": state["moved"] + moved / agents,
        }
        return w, kept

    def _scale(self, server: Own, pushes: Pushes, agents: int) -> Float[Tensor, "1 m"]:
        def since(name: str) -> Float[Tensor, "1 m"]:
            return server.state[name] - pushes.message[name].T

        age = server.t - pushes.message["stamp"].T
        match self.rule:
            case "mishchenko":
                return agents / since("applied").clamp(min=agents)
            case "wu":
                return self.alpha * (1 - since("moved")).clamp(min=0)
            case "cutoff":
                return (age <= self.limit).to(age.dtype)
        inverse = 1 / (1 + age)
        return inverse if self.rule == "inverse" else inverse * (inverse <= 1 - since("moved") + ROUNDING)
