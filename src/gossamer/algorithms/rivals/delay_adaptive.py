"""Delay-adaptive ASGD (Wu et al. 2022; Mishchenko et al. 2022): an old gradient takes a smaller step, or none.

    c_k = s(age_k) g_k,    age_k = t - the step of the model at which worker k took g_k
    inverse:    s = 1 / (1 + age)
    cutoff:     s = 1 if age <= limit, else 0         as Ringmaster ASGD does (Maranjyan et al. 2025)

Workers keep the step of the model they took, and send it along with their gradients.
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

    rule: str = option(
        "inverse",
        "what an old gradient counts for: 1/(1 + age), or all or nothing by its age",
        choices=("inverse", "cutoff"),
    )
    limit: int = option(10, "for rule=cutoff: the oldest gradient that counts, in steps")

    def __post_init__(self) -> None:
        """Check the names and the limit."""
        super().__post_init__()
        if self.rule not in ("inverse", "cutoff"):
            raise UserError(f"unknown rule '{self.rule}' of delay-adaptive; use inverse or cutoff")
        if self.limit < 0:
            raise UserError(f"limit must be 0 or more, got {self.limit}; use for example 10")

    @property
    def message(self) -> tuple[str, ...]:
        """The step of the model too."""
        return (*super().message, "stamp")

    @property
    def numbers(self) -> frozenset[str]:
        """The step is one number."""
        return frozenset({"stamp"})

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        """All agents have a model of step 0."""
        return {**super().start(x, place), "stamp": torch.zeros_like(x[:, :1])}

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        """Return the step of the model at which the gradient was taken."""
        return {"stamp": own.state["stamp"]}

    def work(self, own: Own, pulled: Pulled) -> dict[str, Tensor]:
        """Keep the step of the model that is taken now."""
        return {"stamp": pulled.take("stamp", own.state["stamp"])}

    def serve(self, server: Own, pushes: list[Pushes]) -> tuple[Float[Tensor, "1 d"], dict[str, Tensor]]:
        """Scale every gradient by its age; the server's own model is always of this step."""
        scaled = [replace(each, weights=each.weights * self._scale(server.t, each)) for each in pushes]
        w, kept = super().serve(server, scaled)
        return w, {**kept, "stamp": torch.full_like(server.state["stamp"], server.t + 1)}

    def _scale(self, t: int, pushes: Pushes) -> Float[Tensor, "1 m"]:
        age = t - pushes.message["stamp"].T
        return 1 / (1 + age) if self.rule == "inverse" else (age <= self.limit).to(age.dtype)
