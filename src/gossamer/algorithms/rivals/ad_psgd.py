"""AD-PSGD (Lian et al. 2018), adapted to late links: random pairs of agents average their states.

    x_i(t+1) = x_i(t) + (x_p(t) - x_i(t)) / 2 [+ (x_q(s) - x_i(s)) / 2] - eta v_i(t)

p is the partner of i in this step's matching of the instant links, which are never late nor lossy. q is its partner in
this round's matching of the other links. A round lasts P steps, one more than the oldest message can be old. It begins
at step s with a new matching, and the bracket is added at its last step.

The two ends of an exchange add opposite amounts in the same step, so the mean of all agents moves by gradients alone.
Neither end asks the other:

* All agents draw the same matchings, from a number that they share at each step. They keep that of step s.
* In the whole round an agent sends x(s), with the number of the round. Any message of the round will do, so it does
  not matter which ones are overtaken or lost.
* At the end of the round either end holds a message of the round from the other, because none is older than P - 1. An
  end that holds none leaves the exchange out; that needs P losses in a row, or agents without a common clock.

exchange=one-sided has no rounds: with probability 1/degree for each other neighbour k, an agent averages with the
newest x_k that it holds, and k does not know. It does not conserve the mean.
"""

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np
import torch

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Place, Update, Weights
from gossamer.algorithms.options import COUNT, option
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import mix_heard
from gossamer.network import LinkMatrix, Network
from gossamer.network.delay import steps_until_negligible
from gossamer.shapes import Bool, Float, Int, Tensor

NO_ROUND = -1.0  # an agent that has not begun a round yet


@register("ad-psgd")
@dataclass(frozen=True, kw_only=True)
class AdPsgd(Algorithm):
    """AD-PSGD: random pairs of agents average; over late links both ends add half of a matched difference."""

    origin = "adapted"
    revision = 2

    exchange: str = option(
        "symmetric",
        "over late links: symmetric = both ends add half of the same difference, one-sided = one end averages with a "
        "late model",
        choices=("symmetric", "one-sided"),
    )
    exchange_steps: int = option(
        0, "P, steps of a symmetric exchange over late links; 0 = largest possible message age + 1", within=COUNT
    )

    @property
    def message(self) -> tuple[str, ...]:
        """The state of now, for instant links; that of the beginning of the round, and the round's number."""
        return ("x", "met", "round") if self.exchange == "symmetric" else ("x",)

    @property
    def message_across(self) -> tuple[str, ...]:
        return ("met", "round") if self.exchange == "symmetric" else ("x",)

    @property
    def numbers(self) -> frozenset[str]:
        return frozenset({"round"} if self.exchange == "symmetric" else ())

    @property
    def draws(self) -> bool:
        return True

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        """Keep the state at the beginning of the round, and the number that its matching is drawn with."""
        if self.exchange == "one-sided":
            return {}
        return {"met": x.clone(), "chance": torch.full_like(x[:, :1], NO_ROUND, dtype=torch.float64)}

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        if self.exchange == "one-sided":
            return {}
        assert own.place is not None
        steps = self._steps(own.place.network)
        number = torch.full_like(own.x[:, :1], own.t // steps)
        if own.t % steps == 0:
            return {"met": own.x.clone(), "round": number}  # kept, while an agent's x may be its model's own memory
        return {"met": own.state["met"], "round": torch.where(own.state["chance"] < 0, NO_ROUND, number)}

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Average with the partner of this step, and at the end of a round with that of the round."""
        assert own.place is not None and noise is not None
        if self.exchange == "one-sided":
            return Update(self.descend(own, _one_sided(own, inbox, weights, noise)))
        network = own.place.network
        pairs = own.place.among(matching(network, noise.network)) & (weights.fresh != 0)
        x = own.x + _half_difference(pairs, inbox.fresh, own.x)
        steps, chance = self._steps(network), own.state["chance"]
        if own.t % steps == 0:
            chance = torch.full_like(chance, noise.network)
        if (own.t + 1) % steps == 0 and float(chance[0, 0]) >= 0:
            pairs = own.place.among(matching(network, float(chance[0, 0]), late=True))
            for held, message in (
                (weights.fresh, inbox.message),
                *((late.weights, late.message) for late in inbox.late),
            ):
                of_round = pairs & (held != 0) & (own.t // steps == message["round"].T)
                x += _half_difference(of_round, message["met"], own.sent["met"])
        return Update(self.descend(own, x), state={"met": own.sent["met"], "chance": chance})

    def _steps(self, network: Network) -> int:
        """Return P."""
        losses = steps_until_negligible(network.loss) if network.loss > 0 else 0
        return self.exchange_steps or max(network.delay.largest, network.reliable_delay) + losses + 1


def matching(network: Network, chance: float, *, late: bool = False) -> LinkMatrix:
    """Return a random maximal matching on the instant links, or on the others."""
    pairs = _pairs(network, late)
    order = np.random.default_rng(int(chance * 2**53)).permutation(len(pairs))  # uses all 53 bits of chance
    partner: dict[int, int] = {}
    for i, k in (pairs[number] for number in order.tolist()):
        if i not in partner and k not in partner:
            partner |= {i: k, k: i}
    links = network.pattern
    paired = torch.zeros(len(links), dtype=torch.bool)
    paired[links.find(torch.tensor([*partner]).long(), torch.tensor([*partner.values()]).long())] = True
    return LinkMatrix(links, paired)


def _half_difference(
    pairs: LinkMatrix, theirs: Float[Tensor, "n d"], own: Float[Tensor, "a d"]
) -> Float[Tensor, "a d"]:
    """Return half of the partner's value minus the agent's, and zero without a partner."""
    half = pairs.to(own.dtype) / 2
    difference: Tensor = half @ theirs - half.sum(dim=1, keepdim=True) * own
    return difference


@functools.lru_cache(maxsize=8)
def _pairs(network: Network, late: bool) -> list[tuple[int, int]]:
    instant, links = _instant(network), network.pattern
    once = links.part((~instant if late else instant) & network.in_use & (links.receivers < links.senders))
    return list(zip(once.receivers.tolist(), once.senders.tolist(), strict=True))


def _instant(network: Network) -> Bool[Tensor, " e"]:
    """Return the links on which the messages of both directions arrive in the step in which they are sent."""
    return _reliable(network) & (network.reliable_delay == 0)


def _reliable(network: Network) -> Bool[Tensor, " e"]:
    """Return the links on which both directions are always current."""
    never_late = network.delay.largest <= network.reliable_delay
    reliable = ~network.late_values | never_late
    reliable = reliable & network.spared_values if network.loss else reliable
    return reliable & reliable[network.pattern.reverse]


# ---- one-sided


def _one_sided(own: Own, inbox: Inbox, weights: Weights, noise: Noise) -> Float[Tensor, "a d"]:
    """Return the mean with at most one peer."""
    assert own.place is not None
    network = own.place.network
    held = weights.fresh != 0
    for late in inbox.late:
        held = held | (late.weights != 0)
    unreliable, degree = LinkMatrix(network.pattern, ~_instant(network)), network.degree.to(own.x.device)
    taken = _numbered(held & own.place.among(unreliable), noise.agent, degree[own.place.agents])
    pairs = own.place.among(matching(network, noise.network))
    peer = taken | (pairs & held & ~taken.any(dim=1, keepdim=True))
    return mix_heard(own, *_half_from(peer, inbox, weights))


def _numbered(held: LinkMatrix, chance: Float[Tensor, " a"], degree: Int[Tensor, " a"]) -> LinkMatrix:
    """Mark at most one held message: chance picks one of `degree` neighbours, which may be none of these."""
    # In float32 chance can round up to 1.
    number = (chance * degree).long().clamp(max=degree - 1)
    links, counted = held.links, held.values.cumsum(0)
    before = torch.cat([counted.new_zeros(1), counted])[links.starts[:-1]]  # held by the agents before each
    return held & LinkMatrix(links, counted - 1 == (before + number)[links.receivers])


def _half_from(peer: LinkMatrix, inbox: Inbox, weights: Weights) -> tuple[Inbox, Weights]:
    """Return inbox and weights with one half for the peer, if any, and the rest for the agent itself."""
    half = peer.to(weights.fresh.dtype) / 2
    late = tuple(dataclasses.replace(group, weights=half * (group.weights != 0)) for group in inbox.late)
    pairwise = dataclasses.replace(
        weights, own=1 - half.sum(dim=1), fresh=half * (weights.fresh != 0), mass=torch.ones_like(weights.mass)
    )
    return dataclasses.replace(inbox, late=late), pairwise
