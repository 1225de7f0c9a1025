"""What a step with shared memory costs beside the mixing alone, on a machine that is busy with other things.

All agents live in this process and step in turns, so that no schedule decides which messages are new: in `all new`
every step takes three new messages, in `slices` one, as with four agents on two cores. `gossamer bench runtime`
measures the same with processes.

Run from the root of the repository: OMP_NUM_THREADS=1 python benchmarks/gossip_step.py
"""

import os
import statistics
import time
from collections.abc import Callable

import torch

from gossamer.bench.runtime_worker import Gossip, Mixing
from gossamer.runtime.book.address_book import serve_book

AGENTS, NUMBERS, ROUNDS, SLICE = 4, 100_000, 9, 20
PAIRS = ((0, 1), (2, 3), (0, 2), (1, 3))


def all_new(step: Callable[[int], None]) -> None:
    """Let all agents step in turn."""
    for _ in range(SLICE * len(PAIRS) // 2):
        for rank in range(AGENTS):
            step(rank)


def slices(step: Callable[[int], None]) -> None:
    """Let two agents step in turn for a slice of time, then another two."""
    for pair in PAIRS:
        for _ in range(SLICE):
            for rank in pair:
                step(rank)


def median_time(agents: list[Mixing] | list[Gossip], order: Callable[[Callable[[int], None]], None]) -> float:
    """Return the median microseconds of a step."""
    seconds: list[float] = []

    def step(rank: int) -> None:
        before = time.perf_counter()
        agents[rank].step()
        seconds.append(time.perf_counter() - before)

    order(step)
    return 1e6 * statistics.median(seconds)


@torch.no_grad()
def main() -> None:
    """Measure both orders."""
    torch.set_num_threads(1)
    book = serve_book("127.0.0.1")
    settings = {"transport": "shared", "run": f"one-process-{os.getpid()}", "book": book.endpoint, "meet": 0.0}
    mixing = [Mixing(rank, AGENTS, NUMBERS) for rank in range(AGENTS)]
    gossip = [Gossip(rank, AGENTS, NUMBERS, settings) for rank in range(AGENTS)]
    for order in (all_new, slices):
        for agents in (mixing, gossip):
            median_time(agents, order)  # warm-up
        found = [(median_time(mixing, order), median_time(gossip, order)) for _ in range(ROUNDS)]
        extra = sorted((whole - alone) / alone for alone, whole in found)
        alone, whole = (statistics.median(times) for times in zip(*found, strict=True))
        print(
            f"{order.__name__}: mixing {alone:.1f} us, step {whole:.1f} us, extra over mixing "
            f"{statistics.median(extra):.2f} ({extra[0]:.2f} - {extra[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
