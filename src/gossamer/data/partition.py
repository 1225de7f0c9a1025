"""Partition of the training examples over the agents.

| text                | shards                                                             |
|---------------------|--------------------------------------------------------------------|
| iid                 | disjoint, of equal size, at random                                 |
| dirichlet:0.3       | class by class, in proportions drawn from a Dirichlet distribution |
| classes:2           | by class: sorted by label and dealt as 2 slices to each agent      |
| shares:1,1,2,4      | disjoint and random, of sizes in these proportions                 |
| replicate           | every agent holds all examples                                     |
"""

import numpy as np
import torch

from gossamer.errors import UserError, read_number, read_whole, unknown_name
from gossamer.seeding import generator
from gossamer.shapes import Int, Tensor

PARTITIONS = {
    "iid": "disjoint random shards of equal size: iid",
    "dirichlet": "label skew, smaller is stronger: dirichlet:0.3",
    "classes": "each agent holds slices of a few classes: classes:2",
    "shares": "unequal shards in these proportions: shares:1,1,2,4",
    "replicate": "every agent holds everything: replicate",
}

Shards = list[Tensor]


def partition(text: str, labels: Int[Tensor, "m ..."], num_agents: int, seed: int) -> Shards:
    """Return the indices of each agent's examples; labels are classes, or bytes of a text."""
    kind, colon, rest = text.partition(":")
    if kind not in PARTITIONS:
        raise unknown_name("partition", text, PARTITIONS)
    if colon and kind in ("iid", "replicate"):
        raise UserError(f"partition '{text}' takes no parameter; write {kind}")
    if labels.dim() > 1 and kind in ("dirichlet", "classes"):
        raise UserError(
            f"partition '{text}' deals by class, but these examples have none; use iid, shares or replicate"
        )
    if len(labels) < num_agents:
        raise UserError(f"{num_agents} agents cannot share {len(labels)} examples; use fewer agents or more data")
    draws = generator(seed, "partition")
    if kind == "replicate":
        return [torch.arange(len(labels))] * num_agents
    if kind == "iid":
        return _by_shares(labels, [1.0] * num_agents, draws)
    if kind == "shares":
        return _by_shares(labels, _read_shares(text, rest, num_agents), draws)
    if kind == "dirichlet":
        return _dirichlet(labels, num_agents, _positive(text, read_number(f"partition '{text}'", rest or "1")), draws)
    return _by_class(labels, num_agents, round(_positive(text, read_whole(f"partition '{text}'", rest or "2"))), draws)


def _by_shares(labels: Tensor, shares: list[float], draws: torch.Generator) -> Shards:
    order = torch.randperm(len(labels), generator=draws)
    return list(order.split(_sizes(len(labels), shares)))


def _sizes(total: int, shares: list[float]) -> list[int]:
    """Split a total in proportion, at least one each; remainders go to the largest fractions."""
    spare = total - len(shares)
    exact = [share / sum(shares) * spare for share in shares]
    sizes = [1 + int(value) for value in exact]
    by_fraction = sorted(range(len(shares)), key=lambda index: int(exact[index]) - exact[index])
    for index in by_fraction[: total - sum(sizes)]:
        sizes[index] += 1
    return sizes


def _dirichlet(labels: Tensor, num_agents: int, alpha: float, draws: torch.Generator) -> Shards:
    """Deal every class in new random proportions; repeat until every agent has examples."""
    proportions = np.random.default_rng(draws.initial_seed())
    for _ in range(1000):
        shards: list[list[Tensor]] = [[] for _ in range(num_agents)]
        for label in labels.unique():
            members = (labels == label).nonzero()[:, 0]
            members = members[torch.randperm(len(members), generator=draws)]
            shares = proportions.dirichlet([alpha] * num_agents)
            ends = np.round(np.cumsum(shares)[:-1] * len(members)).astype(int).tolist()
            for shard, piece in zip(shards, members.tensor_split(ends), strict=True):
                shard.append(piece)
        joined = [torch.cat(shard) for shard in shards]
        if min(len(shard) for shard in joined) > 0:
            return joined
    raise UserError(f"dirichlet:{alpha} leaves agents without examples every time; use a larger number or fewer agents")


def _by_class(labels: Tensor, num_agents: int, slices: int, draws: torch.Generator) -> Shards:
    """Sort by label, cut into num_agents * slices pieces and deal them at random."""
    if slices > len(labels.unique()):
        raise UserError(f"classes:{slices} asks for more than the {len(labels.unique())} classes there are; use fewer")
    if num_agents * slices > len(labels):
        raise UserError(
            f"classes:{slices} cuts {len(labels)} examples into {num_agents * slices} pieces; use fewer slices"
        )
    shuffled = torch.randperm(len(labels), generator=draws)
    by_label = shuffled[torch.sort(labels[shuffled], stable=True).indices]
    pieces = by_label.tensor_split(num_agents * slices)
    deal = torch.randperm(len(pieces), generator=draws).tolist()
    return [torch.cat([pieces[index] for index in deal[agent::num_agents]]) for agent in range(num_agents)]


def _read_shares(text: str, rest: str, num_agents: int) -> list[float]:
    shares = [read_number("a share", part) for part in rest.split(",")]
    if len(shares) != num_agents or not all(0 < share < float("inf") for share in shares):
        raise UserError(
            f"partition '{text}' gives {len(shares)} shares for {num_agents} agents; give one positive number an agent"
        )
    return shares


def _positive(text: str, value: float | int) -> float | int:
    if not 0 < value < float("inf"):
        raise UserError(f"partition '{text}' needs a number above 0, got {value}")
    return value
