"""A link played message by message in whole numbers, to compare formulas with; and how a testbed is refused."""

import pytest
import torch

import gossamer as gm
from gossamer.network import Links


def pair_links(agents=2):
    """All ordered pairs of agents."""
    return Links.from_mask(~torch.eye(agents, dtype=torch.bool))


def played_ages(period, own, busy, latency, iterations=120):
    """Return the ages of the newest messages at the receiver's ends, once messages have come for a while.

    The sender publishes at multiples of its period. When the link is free, the newest message goes that waited before.
    """
    end_of_play = iterations * max(period, own, busy) + 4 * latency
    arrivals = []  # of each message that is sent: arrival, stamp
    free, published = 0, 0
    while free <= end_of_play:
        newest = (free - 1) // period * period
        if newest <= published:  # nothing waits, so the next one goes as it is published
            newest = published + period
            free = newest
        published = newest
        arrivals.append((free + busy + latency, newest))
        free += max(busy, 0)
        if busy == 0:
            free = newest
    ages, place = [], 0
    for end in range(own, end_of_play, own):
        while place + 1 < len(arrivals) and arrivals[place + 1][0] <= end:
            place += 1
        if arrivals[place][0] <= end and end > end_of_play // 4:
            ages.append(len(range(-(-arrivals[place][1] // own), end // own + 1)) - 1)  # own ends from the stamp on
    return ages


def refusal(*spec, **settings):
    """Return the one line with which a testbed is refused."""
    with pytest.raises(gm.UserError) as refused:
        gm.testbed(*spec, **settings)
    assert "\n" not in str(refused.value)
    return str(refused.value)
