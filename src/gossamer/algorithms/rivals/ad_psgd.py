"""AD-PSGD (Lian et al. 2018), adapted to late links: random pairs of agents average their states.

    x_i(t+1) = (x_i(t) + x_p(t)) / 2 - eta v_i(t)          p = the partner of i in a random matching
    x_i(t+1) = (x_i(t) + x_k(t - tau)) / 2 - eta v_i(t)    with probability 1/degree for each unreliable neighbour k
    x_i(t+1) = x_i(t) - eta v_i(t)                         without a partner

Matchings use the reliable links, which are never late or lossy, and a random number that all agents share: links come
in random order, and a link joins the matching if both ends are free. A random number of its own decides whether an
agent averages with a message of an unreliable neighbour instead. Its partner does not know and averages anyway, so the
mean of all agents is not conserved.
"""

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np
import torch

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Update, Weights
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import mix_heard
from gossamer.network import Network
from gossamer.shapes import Bool, Float, Int, Tensor


@register("ad-psgd")
@dataclass(frozen=True, kw_only=True)
class AdPsgd(Algorithm):
    """AD-PSGD: random pairs of agents average; late messages are averaged one-sidedly."""

    origin = "adapted"

    @property
    def draws(self) -> bool:
        return True

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return the mean with at most one peer, minus eta v."""
        assert own.place is not None and noise is not None
        agents, network = own.place.agents, own.place.network
        unreliable, degree = _links(network, own.x.device)
        held = weights.fresh != 0
        for late in inbox.late:
            held = held | (late.weights != 0)
        taken = _numbered(held & own.place.among(unreliable), noise.agent, degree[agents])
        pairs = own.place.among(matching(network, noise.network).to(own.x.device))
        peer = taken | (pairs & held & ~taken.any(dim=1, keepdim=True))
        return Update(self.descend(own, mix_heard(own, *_half_from(peer, inbox, weights))))


def matching(network: Network, chance: float) -> Bool[Tensor, "n n"]:
    """Return a random maximal matching on the reliable links."""
    pairs = _reliable_pairs(network)
    order = np.random.default_rng(int(chance * 2**53)).permutation(len(pairs))  # uses all 53 bits of chance
    partner: dict[int, int] = {}
    for i, k in (pairs[number] for number in order.tolist()):
        if i not in partner and k not in partner:
            partner |= {i: k, k: i}
    paired = torch.zeros_like(network.links)
    paired[list(partner), list(partner.values())] = True
    return paired


def _numbered(held: Bool[Tensor, "a n"], chance: Float[Tensor, " a"], degree: Int[Tensor, " a"]) -> Bool[Tensor, "a n"]:
    """Mark at most one held message: chance picks one of `degree` neighbours, which may be none of these."""
    # In float32 chance can round up to 1.
    number = (chance * degree).long().clamp(max=degree - 1)
    return held & (held.cumsum(dim=1) - 1 == number[:, None])


def _half_from(peer: Bool[Tensor, "a n"], inbox: Inbox, weights: Weights) -> tuple[Inbox, Weights]:
    """Return inbox and weights with one half for the peer, if any, and the rest for the agent itself."""
    half = peer.to(weights.fresh.dtype) / 2
    late = tuple(dataclasses.replace(group, weights=half * (group.weights != 0)) for group in inbox.late)
    pairwise = dataclasses.replace(
        weights, own=1 - half.sum(dim=1), fresh=half * (weights.fresh != 0), mass=torch.ones_like(weights.mass)
    )
    return dataclasses.replace(inbox, late=late), pairwise


def _reliable(network: Network) -> Bool[Tensor, "n n"]:
    """Return the links on which both directions are always current."""
    never_late = network.delay.largest <= network.reliable_delay
    reliable = network.links if never_late else network.links & ~network.late_links
    reliable = reliable & network.spared if network.loss else reliable
    return reliable & reliable.T


@functools.lru_cache(maxsize=8)
def _reliable_pairs(network: Network) -> list[tuple[int, int]]:
    return [(i, k) for i, k in _reliable(network).triu().nonzero().tolist()]


@functools.lru_cache(maxsize=8)
def _links(network: Network, device: torch.device) -> tuple[Bool[Tensor, "n n"], Int[Tensor, " n"]]:
    """Return the links that can be late or lossy, and every agent's number of neighbours."""
    return (network.links & ~_reliable(network)).to(device), network.degree.to(device)
