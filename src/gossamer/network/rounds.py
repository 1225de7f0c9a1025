"""The graphs of a run, round by round, and their mixing weights."""

from functools import lru_cache

import torch

from gossamer.network.graph_schedule import LONGEST_GAP
from gossamer.network.network import Network
from gossamer.shapes import Bool, Int, Tensor

MOST_GRAPHS = 512  # of the newest rounds; agents of different speeds are in different rounds
MOST_WEIGHED = 128


class Rounds:
    """What a network's schedule says of each round of a run, made once and kept for a while."""

    def __init__(self, network: Network, seed: int) -> None:
        """The network has a schedule."""
        assert network.schedule is not None
        self._network = network
        self.graph = lru_cache(MOST_GRAPHS)(network.schedule.begin(network.pattern, seed))
        self.flags = lru_cache(MOST_GRAPHS)(self._flags)
        self._weighed = lru_cache(MOST_WEIGHED)(self._make)

    @classmethod
    def of(cls, network: Network, seed: int) -> "Rounds | None":
        """Return the rounds of a network, None without a schedule."""
        return None if network.schedule is None else cls(network, seed)

    @property
    def longest_gap(self) -> int:
        """The number of rounds without use for which messages are kept."""
        assert self._network.schedule is not None
        return min(self._network.schedule.longest_gap(self._network.pattern), LONGEST_GAP)

    def used(self, round_number: int) -> Bool[Tensor, " e"]:
        """Return the links in use."""
        return self.graph(round_number).used

    def _flags(self, round_number: int) -> list[bool]:
        flags: list[bool] = self.used(round_number).tolist()
        return flags

    def used_when(self, rounds: Int[Tensor, " e"]) -> Bool[Tensor, " e"]:
        """Return whether each link was in use in a round of its own; before round 0 all were."""
        used = torch.ones_like(rounds, dtype=torch.bool)
        for number in torch.unique(rounds).tolist():
            if number >= 0:
                used = torch.where(rounds == number, self.used(number), used)
        return used

    def network(self, round_number: int) -> Network:
        """Return the network with the mixing weights of a round; the same object for the same graph."""
        return self._weighed(self.used(round_number).numpy().tobytes())

    def _make(self, used: bytes) -> Network:
        flags = torch.frombuffer(bytearray(used), dtype=torch.bool) if used else torch.zeros(0, dtype=torch.bool)
        return self._network if bool(flags.all()) else self._network.using(flags)
