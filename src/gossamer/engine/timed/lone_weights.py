"""The mixing weights of one agent that updates alone, without looking at the whole network."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gossamer.algorithms import Place, Weights
from gossamer.algorithms.steps import weigh
from gossamer.network import LinkMatrix, Network
from gossamer.shapes import Tensor

MOST_CACHED = 2**15


class LoneWeights:
    """The row of `steps.weigh` of one agent. The links of others count as they were at their newest updates."""

    def __init__(self, network: Network, places: Sequence[Place], dtype: torch.dtype) -> None:
        self._network, self._places, self._dtype = network, places, dtype
        links = network.pattern
        self._starts = links.starts.tolist()
        self._reverse, self._senders = links.reverse.numpy(), links.senders.numpy()
        self._own, self._w = network.own_weights.numpy(), network.link_weights.values.numpy()
        self._half = 0.5 if network.lazy else 1.0
        self.current = np.zeros(len(links), dtype=bool)
        self._mutual = np.zeros(network.num_agents, dtype=np.int64)  # links that are current in both directions
        self._local = network.clip_weights == "renormalised" or network.mixing == "metropolis"
        self._cached = lru_cache(MOST_CACHED)(self._make)

    def set_current(self, agent: int, current: Sequence[bool]) -> None:
        """Note which links of an agent are current at its update."""
        first, end = self._starts[agent], self._starts[agent + 1]
        for link in np.flatnonzero(self.current[first:end] != current) + first:
            change = -1 if self.current[link] else 1
            self.current[link] = not self.current[link]
            if self.current[self._reverse[link]]:
                self._mutual[agent] += change
                self._mutual[self._senders[link]] += change

    def set_everything(self, current: npt.NDArray[Any]) -> None:
        """Note which links are current, of all agents."""
        self.current[:] = current
        both = self.current & self.current[self._reverse]
        self._mutual[:] = np.add.reduceat(np.append(both, False), self._starts[:-1]) * (np.diff(self._starts) > 0)

    def forget(self, agent: int) -> None:
        """Note that an agent holds nothing any more."""
        self.set_current(agent, [False] * (self._starts[agent + 1] - self._starts[agent]))

    def note(self, agent: int, iteration: int, current: Sequence[bool]) -> None:
        """Note which links of an agent are current at its update in this iteration."""
        self.set_current(agent, current)

    def note_all(self, iteration: int, current: npt.NDArray[Any]) -> None:
        """Note which links are current where all agents update in this iteration."""
        self.set_everything(current)

    def of(self, agent: int, iteration: int, reliable: tuple[bool, ...], late: tuple[bool, ...]) -> Weights:
        """Return an agent's weights if these of its links are current and those are late."""
        mine = slice(self._starts[agent], self._starts[agent + 1])
        if not self._local:  # they depend on the whole component
            everyone = self.current.tobytes()
            return self._cached(agent, reliable, late, everyone)
        back = self.current[self._reverse[mine]]
        degrees = self._mutual[self._senders[mine]]
        return self._cached(agent, reliable, late, (back.tobytes(), degrees.tobytes(), int(self._mutual[agent])))

    def _make(self, agent: int, reliable: tuple[bool, ...], late: tuple[bool, ...], key: object) -> Weights:
        """`key` is what else the weights depend on."""
        place, mine = self._places[agent], slice(self._starts[agent], self._starts[agent + 1])
        if not self._local:
            everyone_late = torch.zeros(len(self.current), dtype=torch.bool)
            everyone_late[mine] = torch.tensor(late, dtype=torch.bool)
            whole = weigh(self._network, torch.from_numpy(self.current.copy()), everyone_late)
            return whole.to(place.share.to(self._dtype)).of(place)
        now, heard = np.array(reliable, dtype=bool), np.array(reliable, dtype=bool) | np.array(late, dtype=bool)
        own, w = self._own[agent], self._w[mine]
        mass = 1.0 if heard.all() else own + (w * heard).sum()
        if self._network.clip_weights == "renormalised":
            total = own + (w * now).sum()
            clip_own, clip = own / total, w * now / total
        else:
            mutual = now & self.current[self._reverse[mine]]
            degrees = np.maximum(self._mutual[agent], self._mutual[self._senders[mine]])
            clip = self._half * mutual / (1 + degrees)
            clip_own = 1 - clip.sum()
        return Weights(
            self._number(own),
            self._matrix(place, w * now),
            self._number(mass),
            self._number(clip_own),
            self._matrix(place, clip),
        )

    def _number(self, value: float) -> Tensor:
        return torch.tensor([value], dtype=self._dtype)

    def _matrix(self, place: Place, values: npt.NDArray[Any]) -> LinkMatrix:
        return LinkMatrix(place.links, torch.from_numpy(values).to(place.share.device, self._dtype))
