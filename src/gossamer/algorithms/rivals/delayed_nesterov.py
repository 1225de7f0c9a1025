"""Delayed Nesterov (Liu et al. 2024): the server applies gradients on arrival, and its momentum after every N of them.

    at every step:      x_s <- x_s - eta u,    buffer += the gradients that arrived,    count += their number
    if count >= N:      m <- beta m + buffer / count,    x_s <- x_s - eta beta m,    buffer = count = 0

The mean of N gradients is a steadier momentum than single late gradients. If all gradients arrive at every step, this
is SGD with Nesterov's momentum.
"""

from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Own, Place
from gossamer.algorithms.options import FRACTION, option
from gossamer.algorithms.registry import register
from gossamer.algorithms.rivals.server import Pushes, ServerBased
from gossamer.errors import UserError
from gossamer.shapes import Float, Tensor


@register("delayed-nesterov")
@dataclass(frozen=True, kw_only=True)
class DelayedNesterov(ServerBased):
    """Delayed Nesterov: a server that updates its momentum once per N gradients."""

    origin = "adapted"

    beta: float = option(
        0.9, "momentum of delayed-nesterov, updated once per N gradients, N the number of agents", within=FRACTION
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.server_momentum:
            raise UserError(
                f"delayed-nesterov has a momentum of its own, got server_momentum {self.server_momentum}; use beta"
            )

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        return {"m": torch.zeros_like(x), "buffer": torch.zeros_like(x), "count": torch.zeros_like(x[:, :1])}

    def serve(self, server: Own, pushes: list[Pushes]) -> tuple[Float[Tensor, "1 d"], dict[str, Tensor]]:
        """Descend along the new gradients and, if a round is complete, along the momentum."""
        assert server.place is not None
        agents, state = server.place.network.num_agents, server.state
        u = self.mean_push(server, pushes)
        count = state["count"] + torch.stack([each.weights.sum() for each in pushes]).sum()
        buffer = state["buffer"] + agents * u
        complete = count >= agents
        m = torch.where(complete, self.beta * state["m"] + buffer / count, state["m"])
        w = server.x.sub(u + torch.where(complete, self.beta * m, 0), alpha=server.lr)
        return w, {"m": m, "buffer": torch.where(complete, 0, buffer), "count": torch.where(complete, 0, count)}
