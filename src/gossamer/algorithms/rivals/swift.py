"""SWIFT (Bornstein et al. 2023), wait-free: every H steps an agent averages the models it holds, by influence.

    x_i(t+1) = x_i(t) + sum_j q_ij (x_j(t - tau_ij) - x_i(t)) - eta v_i(t)          if H divides t
    x_i(t+1) = x_i(t) - eta v_i(t)                                                  else
    q_ij     = c_ij min(1, p_j / p_i)                                               over all neighbours heard from

p_j is the influence of agent j, the size of its data over the mean size; messages include it. p_i q_ij = p_j q_ji, so
without delay the mean of the models weighted by p moves by the gradients weighted by p alone. c is symmetric, from the
publication's procedure: agents divide their weight equally among themselves and their neighbours, those with more
neighbours first; the others divide what is left (`coefficients`).

Agents send at every step, so the averaged models are as new as the links allow.
"""

import functools
from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Update, Weights
from gossamer.algorithms.options import PERIOD, option
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import add_product
from gossamer.network import LinkMatrix, Network
from gossamer.shapes import Float, Tensor


@register("swift")
@dataclass(frozen=True, kw_only=True)
class Swift(Algorithm):
    """SWIFT: every H steps averages the models held, weighted by the senders' data."""

    origin = "adapted"
    revision = 2

    every: int = option(2, "H, steps between two averagings", within=PERIOD)

    @property
    def message(self) -> tuple[str, ...]:
        return ("x", "influence")

    @property
    def numbers(self) -> frozenset[str]:
        return frozenset({"influence"})

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        assert own.place is not None
        return {"influence": own.place.share[:, None]}

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return the mean of all messages held every H steps, else a local step."""
        x = own.x.clone()
        if own.t % self.every == 0:
            assert own.place is not None
            shares = own.place.among(coefficients(own.place.network).to(x))
            for held, message in (
                (weights.fresh, inbox.message),
                *((late.weights, late.message) for late in inbox.late),
            ):
                ratio = (held != 0) * message["influence"].T / own.place.share[:, None]
                q = shares * ratio.clamp(max=1)
                add_product(x, q, message["x"])
                x.addcmul_(q.sum(dim=1)[:, None], own.x, value=-1)
        return Update(self.descend(own, x))


@functools.lru_cache(maxsize=8)
def coefficients(network: Network) -> LinkMatrix:
    """Return c without its diagonal: symmetric, and every row sums to less than one.

    Agents take their turns by the number of their neighbours, the largest first. In its turn an agent offers each
    neighbour that it has no coefficient with an equal part of its weight; it keeps one part. Both ends of a link take
    the smaller of their offers. Agents with as many neighbours take their turns together.
    """
    links, degree = network.pattern, network.degree
    c = torch.zeros(len(links), dtype=torch.float64)
    left = network.in_use
    for turn in sorted(set(degree.tolist()), reverse=True):
        offers = (1 - links.row_sums(c)) / (1 + links.row_sums(left))
        now = left & ((degree[links.receivers] == turn) | (degree[links.senders] == turn))
        c = torch.where(now, torch.minimum(offers[links.receivers], offers[links.senders]), c)
        left = left & ~now
    return LinkMatrix(links, c)
