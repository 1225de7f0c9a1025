"""Delay-adaptive ASGD (Wu et al. 2022; Mishchenko et al. 2022): the server scales a gradient by its age.

    c_k = s(age_k) g_k,    age_k = t - the step of the model at which worker k took g_k
    inverse:    s = 1 / (1 + age)
    cutoff:     s = 1 if age <= limit, else 0         as in Ringmaster ASGD (Maranjyan et al. 2025)

Workers send the step of their model with each gradient.
"""

from dataclasses import dataclass, replace

import torch

from gossamer.algorithms.base import Own, Place
from gossamer.algorithms.options import option
from gossamer.algorithms.registry import register
from gossamer.algorithms.rivals.server import Pulled, Pushes, ServerBased
from gossamer.errors import UserError
from gossamer.shapes import Float, Tensor


@register("delay-adaptive")
@dataclass(frozen=True, kw_only=True)
class DelayAdaptive(ServerBased):
    """Delay-adaptive ASGD: a server that scales gradients by their age."""

    origin = "adapted"

    rule: str = option(
        "inverse",
        "weight of a gradient by its age: inverse = 1/(1 + age), cutoff = 1 up to the limit, then 0",
        choices=("inverse", "cutoff"),
    )
    limit: int = option(10, "for rule=cutoff: the largest age that counts, in steps")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule not in ("inverse", "cutoff"):
            raise UserError(f"unknown rule '{self.rule}' of delay-adaptive; use inverse or cutoff")
        if self.limit < 0:
            raise UserError(f"limit must be 0 or more, got {self.limit}; use for example 10")

    @property
    def message(self) -> tuple[str, ...]:
        return (*super().message, "stamp")

    @property
    def numbers(self) -> frozenset[str]:
        return frozenset({"stamp"})

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        return {**super().start(x, place), "stamp": torch.zeros_like(x[:, :1])}

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        return {"stamp": own.state["stamp"]}

    def work(self, own: Own, pulled: Pulled) -> dict[str, Tensor]:
        """Keep the step of the model that arrived."""
        return {"stamp": pulled.take("stamp", own.state["stamp"])}

    def serve(self, server: Own, pushes: list[Pushes]) -> tuple[Float[Tensor, "1 d"], dict[str, Tensor]]:
        """Scale every gradient by its age; the server's own model has age 0."""
        scaled = [replace(each, weights=each.weights * self._scale(server.t, each)) for each in pushes]
        w, kept = super().serve(server, scaled)
        return w, {**kept, "stamp": torch.full_like(server.state["stamp"], server.t + 1)}

    def _scale(self, t: int, pushes: Pushes) -> Float[Tensor, "1 m"]:
        age = t - pushes.message["stamp"].T
        return 1 / (1 + age) if self.rule == "inverse" else (age <= self.limit).to(age.dtype)
