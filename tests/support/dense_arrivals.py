"""The ages of messages as dense matrices, pair by pair from the definition: an oracle of the arrivals on lists."""

import torch

from gossamer.network import NOTHING, Network
from gossamer.seeding import generator


def dense_ages(net: Network, seed: int, steps: int, *, period: int = 1, inside: int = 1, largest: int) -> torch.Tensor:
    """The age at each step of the newest message that i holds from k, [steps, n, n]."""
    n, links, spared = net.num_agents, net.links, net.spared
    state = net.delay.start(links, generator(seed, "delay-start"))
    held: dict[tuple[int, int], list[int]] = {pair: [] for pair in map(tuple, links.nonzero().tolist())}
    arriving: dict[tuple[int, int], list[tuple[int, int]]] = {pair: [] for pair in held}
    found = torch.full((steps, n, n), NOTHING)
    for t in range(steps):
        draws = generator(seed, "delay", t)
        delays, state = net.delay.sample(t, state, links, draws)
        chance = torch.rand((n, n), generator=draws, dtype=torch.float64) if net.loss else torch.ones(n, n)
        for i, k in held:
            every = inside if spared[i, k] else period
            delay = int(delays[i, k])
            if spared[i, k] and not net.delay.covers_every_link:
                delay = net.reliable_delay
            delay = max(delay, net.reliable_delay)
            lost = bool(chance[i, k] < net.loss) and not spared[i, k]
            sent = t - delay
            if net.startup == "min" and t == 0:
                held[i, k].append(0)
            if not lost and (sent >= 0 or net.startup == "full") and (every == 1 or sent < 0):
                held[i, k].append(sent // every * every)
            if not lost and every > 1 and t % every == 0:
                arriving[i, k].append((t, t + delay))
            held[i, k] += [at for at, arrival in arriving[i, k] if arrival <= t]
            if held[i, k] and t - max(held[i, k]) <= largest:
                found[t, i, k] = t - max(held[i, k])
    return found
