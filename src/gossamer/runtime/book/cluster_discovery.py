"""Discovery of clusters and delay during training, from the ages that agents post in the address book."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gossamer.network import Discovery, Network
from gossamer.network.discovery import discover_on

EVERY = 1.0  # seconds between two looks
ENOUGH = 20  # iterations of ages needed from every agent
TOLERANCE = 1  # a reliable link is now and then one iteration late


Read = Callable[[str], dict[str, Any] | None]  # of an address book: the entry of a name


class ClusterObserver:
    """Checks all agents' ages every second. A link changes sides only when it clearly has (network.discovery)."""

    def __init__(self, network: Network, folder: Path | None) -> None:
        self._network, self._folder = network, folder
        self._found: Discovery | None = None
        self._looked, self._posted_tau = 0.0, 0

    def look(self, read: Read, step: int) -> dict[str, Any] | None:
        """Return clusters and tau as plain values when they changed, and log them."""
        now = time.monotonic()
        if now - self._looked < EVERY:
            return None
        self._looked = now
        ages = self._ages(read)
        if ages is None:
            return None
        found = discover_on(ages, self._network.pattern, tolerance=TOLERANCE, previous=self._found)
        before, self._found = self._found, found
        same_tau = abs(self._posted_tau - found.tau) <= max(1, self._posted_tau // 4)
        if before is not None and before.clusters == found.clusters and same_tau:
            return None
        self._posted_tau = found.tau
        values = {"step": step, "clusters": [list(members) for members in found.clusters], "tau": found.tau}
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / "discovery.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")
        return values

    def _ages(self, read: Read) -> torch.Tensor | None:
        """Return the ages of the last iterations on all links, [steps, e]; None until all have posted enough."""
        posted = [read(f"ages/{agent}") for agent in range(self._network.num_agents)]
        rows = [entry.get("ages") if entry else None for entry in posted]
        count = min((len(row) if isinstance(row, list) else 0) for row in rows)
        if count < ENOUGH:
            return None
        degree, ages = self._network.degree.tolist(), []
        for agent, row in enumerate(rows):
            try:
                mine = torch.as_tensor(row[-count:])  # type: ignore[index]
            except (TypeError, ValueError, RuntimeError):  # not numbers, or rows of several lengths
                return None
            if mine.shape != (count, degree[agent]):
                return None
            ages.append(mine.to(torch.int64))
        return torch.cat(ages, dim=1)  # in the order of the links, which is by receiver
