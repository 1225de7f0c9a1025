"""Measures the time of a message over ZeroMQ between two agents of one process, and how many wait for a tick.

Run from the root of the repository: python benchmarks/socket_latency.py [MESSAGES] [BYTES]
"""

import statistics
import sys
import time

import torch

from gossamer.runtime.message import Stamp
from gossamer.runtime.transport import sockets
from gossamer.runtime.transport.sockets import Sockets


def seconds_of_messages(messages: int, length: int) -> list[float]:
    """Publish messages, each after the last one has arrived; return the time of each."""
    where: dict[int, str] = {}
    sender, receiver = (Sockets(rank, 2, 1, where=where.get) for rank in range(2))
    parts, seconds = [torch.zeros(length, dtype=torch.uint8)], []
    try:
        for agent in (sender, receiver):
            agent.open(length)
        where.update({0: sender.endpoint, 1: receiver.endpoint})
        for sequence in range(messages + 1):
            begun = time.perf_counter()
            sender.publish(Stamp(0, 1, sequence, 0, 0), parts)
            while (letter := receiver.latest(0)) is None or letter.stamp.sequence < sequence:
                time.sleep(1e-4)
            seconds.append(time.perf_counter() - begun)
    finally:
        sender.close()
        receiver.close()
    return seconds[1:]  # the first message waits for the connection


def main(messages: int = 3000, length: int = 400_000) -> None:
    """Print the share of late messages, the mean and the median."""
    torch.set_num_threads(1)
    seconds = seconds_of_messages(messages, length)
    late = sum(each > sockets.TICK / 2 for each in seconds) / messages
    mean, median = 1000 * statistics.fmean(seconds), 1000 * statistics.median(seconds)
    print(f"late by a tick {late:.2%}, mean {mean:.2f} ms, median {median:.2f} ms")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
