"""DASGD with importance sampling (Du, You, Mo 2020): a gradient counts for its data, and not for how often it arrives.

    c_k = (p_k / q_k) g_k
    p_k = n_k / sum_j n_j             n_k the size of worker k's data, sums over all that were heard so far
    q_k = rate_k / sum_j rate_j       rate_k = arrivals of k / steps since the first of them

Where some links lose more, or let more be overtaken, plain ASGD follows the mean of the agents that get through; here
the mean is the one over the data. Equal data and links that deliver at every step make it ASGD itself.
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
    """DASGD-IS: a server that weighs gradients by data over arrivals."""

    @property
    def message(self) -> tuple[str, ...]:
        """The size of the sender's data too."""
        return (*super().message, "share")

    @property
    def numbers(self) -> frozenset[str]:
        """The size is one number."""
        return frozenset({"share"})

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        """Nobody was heard: for each sender its arrivals, the steps since the first, and its data."""
        nothing = x.new_zeros((len(x), place.network.num_agents), dtype=torch.float64)
        return {**super().start(x, place), "arrivals": nothing, "steps": nothing, "shares": nothing}

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        """Return the size of the data."""
        assert own.place is not None
        return {"share": own.place.share[:, None]}

    def serve(self, server: Own, pushes: list[Pushes]) -> tuple[Float[Tensor, "1 d"], dict[str, Tensor]]:
        """Count the arrivals, and weigh them by it."""
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
    """Return p / q for every sender that was heard."""
    rate = arrivals / steps.clamp(min=1)
    q = rate / rate.sum()
    return (shares / shares.sum()) / torch.where(rate > 0, q, 1)
