"""The mixing weights of one agent that updates alone, on a graph that changes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gossamer.algorithms import Place, Weights
from gossamer.algorithms.steps import weigh
from gossamer.engine.timed.lone_weights import LoneWeights
from gossamer.network import Network, Rounds


class WeightsOfRounds(LoneWeights):
    """As `LoneWeights`, on the links in use. Others' links count as at their newest updates that used them."""

    def __init__(self, network: Network, places: Sequence[Place], dtype: torch.dtype, rounds: Rounds) -> None:
        super().__init__(network, places, dtype)
        self._rounds = rounds

    def note(self, agent: int, iteration: int, current: Sequence[bool]) -> None:
        mine = slice(self._starts[agent], self._starts[agent + 1])
        used = self._rounds.flags(iteration)[mine]
        before = self.current[mine].tolist()
        self.set_current(agent, [now if use else old for now, use, old in zip(current, used, before, strict=True)])

    def note_all(self, iteration: int, current: npt.NDArray[Any]) -> None:
        self.set_everything(np.where(self._rounds.used(iteration).numpy(), current, self.current))

    def of(self, agent: int, iteration: int, reliable: tuple[bool, ...], late: tuple[bool, ...]) -> Weights:
        network = self._rounds.network(iteration)
        if network is self._network:  # all links are in use
            return super().of(agent, iteration, reliable, late)
        place, mine = self._places[agent], slice(self._starts[agent], self._starts[agent + 1])
        current = torch.from_numpy(self.current) & network.in_use
        others = network.in_use.clone()  # count as heard
        others[mine] = torch.tensor(late, dtype=torch.bool)
        return weigh(network, current, others).to(place.share.to(self._dtype)).of(place)
