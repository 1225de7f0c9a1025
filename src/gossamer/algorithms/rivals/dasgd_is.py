"""DASGD with importance sampling (Du, You, Mo 2020): the server weighs gradients by data size over arrival rate.

    c_k = (p_k / q_k) g_k
    p_k = n_k / sum_j n_j             n_k the size of worker k's data; sums over all workers heard so far
    q_k = rate_k / sum_j rate_j       rate_k = arrivals from k / steps since its first arrival

If some links lose or reorder more messages than others, plain ASGD follows the agents that get through. This rule
follows the mean over the data. With equal data, and links that deliver at every step, it is ASGD.
"""

from dataclasses import dataclass, replace

import torch

from gossamer.algorithms.base import Own, Place
from gossamer.algorithms.registry import register
from gossamer.algorithms.rivals.server import Pushes, ServerBased
from gossamer.shapes import Float, Tensor


@register("dasgd-is")
@dataclass(frozen=True, kw_only=True)
class DasgdIs(ServerBased):
    """DASGD-IS: a server that weighs gradients by data size over arrival rate."""

    origin = "adapted"

    @property
    def message(self) -> tuple[str, ...]:
        return (*super().message, "share")

    @property
    def numbers(self) -> frozenset[str]:
        return frozenset({"share"})

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        """Keep, for each sender, its arrivals, the steps since the first one, and the size of its data."""
        nothing = x.new_zeros((len(x), place.network.num_agents), dtype=torch.float64)
        return {**super().start(x, place), "arrivals": nothing, "steps": nothing, "shares": nothing}

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        assert own.place is not None
        return {"share": own.place.share[:, None]}

    def serve(self, server: Own, pushes: list[Pushes]) -> tuple[Float[Tensor, "1 d"], dict[str, Tensor]]:
        """Count the arrivals, and weigh the gradients."""
        arrived = torch.zeros_like(server.state["arrivals"])
        told = torch.zeros_like(arrived)
        for each in pushes:
            arrived[:, each.senders] += each.weights
            told[:, each.senders] += each.weights * each.message["share"].T
        arrivals = server.state["arrivals"] + arrived
        steps = server.state["steps"] + (arrivals > 0)
        shares = torch.where(arrived > 0, told, server.state["shares"])
        factors = _importance(arrivals, steps, shares).to(server.x.dtype)
        weighed = [replace(each, weights=each.weights * factors[:, each.senders]) for each in pushes]
        w, kept = super().serve(server, weighed)
        return w, {**kept, "arrivals": arrivals, "steps": steps, "shares": shares}


def _importance(
    arrivals: Float[Tensor, "1 n"], steps: Float[Tensor, "1 n"], shares: Float[Tensor, "1 n"]
) -> Float[Tensor, "1 n"]:
    """Return p / q for every sender heard so far."""
    rate = arrivals / steps.clamp(min=1)
    q = rate / rate.sum()
    return (shares / shares.sum()) / torch.where(rate > 0, q, 1)
