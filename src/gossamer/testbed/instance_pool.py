"""Spot instances: how many machines there are, over time. Which agents go and come is drawn."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch

from gossamer.errors import UserError
from gossamer.network import Links
from gossamer.seeding import generator
from gossamer.testbed.absence import AbsenceSchedule, Change
from gossamer.testbed.time_unit import check_seconds, to_nanoseconds


@dataclass(frozen=True)
class InstancePool(AbsenceSchedule):
    """Agents beyond the size of the pool are down. After the last time the size stays.

    Attributes:
        seconds: when the size changes, ascending.
        sizes: the number of instances from then on.
        whole: the size that stands for all agents: others are scaled and rounded; None: sizes are numbers of agents.
    """

    seconds: tuple[float, ...]
    sizes: tuple[int, ...]
    whole: int | None = None

    def __post_init__(self) -> None:
        if not self.sizes or len(self.sizes) != len(self.seconds):
            raise UserError(f"a pool has {len(self.seconds)} times for {len(self.sizes)} sizes; give one of each")
        for time in self.seconds:
            check_seconds("a time of the pool", time)
        for before, after in pairwise(self.seconds):
            if after < before:
                raise UserError(f"times of a pool must not decrease, got {after:g} after {before:g}; sort the rows")
        if min(self.sizes) < 0:
            raise UserError(f"a pool holds 0 instances or more, got {min(self.sizes)}")

    def wanted(self, num_agents: int) -> Iterator[tuple[int, int]]:
        """Yield times, and how many agents are up from then on."""
        for time, size in zip(self.seconds, self.sizes, strict=True):
            agents = size if self.whole is None else round(size * num_agents / self.whole)
            yield to_nanoseconds(time), min(agents, num_agents)

    def changes(self, num_agents: int, links: Links, seed: int) -> Iterator[Change]:
        up = list(range(num_agents))
        down: list[int] = []
        for number, (time, size) in enumerate(self.wanted(num_agents)):
            leaving = len(up) > size
            group, other = (up, down) if leaving else (down, up)
            draws = generator(seed, "testbed-pool", number)
            drawn = torch.randperm(len(group), generator=draws)[: abs(len(up) - size)].tolist()
            chosen = sorted(group[place] for place in drawn)
            group[:] = sorted(set(group) - set(chosen))
            other[:] = sorted([*other, *chosen])
            for agent in chosen:
                yield Change(time, "agent", agent, not leaving)
