"""Clusters and delay, found from observed message ages."""

from dataclasses import dataclass

import numpy as np
import torch

from gossamer.errors import UserError
from gossamer.network.arrivals import Arrivals
from gossamer.network.links import Links
from gossamer.network.network import Network
from gossamer.shapes import Bool, Int, Tensor


@dataclass(frozen=True, eq=False)
class Discovery:
    """The result of a broadcast.

    Attributes:
        clusters: groups of agents joined by reliable links.
        tau: the typical delay of the other links, in steps.
        reliable_links: the reliable links.
    """

    clusters: tuple[tuple[int, ...], ...]
    tau: int
    reliable_links: Links

    @property
    def reliable(self) -> Bool[Tensor, "n n"]:
        """Which links are reliable, as a mask."""
        return self.reliable_links.mask


def discover(
    ages: Int[Tensor, "steps n n"],
    links: Bool[Tensor, "n n"],
    *,
    tolerance: int = 0,
    share: float = 0.9,
    previous: Discovery | None = None,
    leave: float = 0.7,
) -> Discovery:
    """Find the clusters in observed ages.

    A direction of a link is reliable if at least `share` of its observed ages are 0..tolerance. A link is reliable if
    both directions are. Clusters are the connected components of the reliable links. `tau` is the rounded median age
    of the late messages on the other directions, or 0 if there are none.

    Args:
        ages: at each step, for receiver and sender, the age of the newest message; -1 is no message.
        links: who is linked with whom.
        tolerance: the largest age that counts as current.
        share: the share of observations that must be current for a link to be reliable.
        previous: an earlier discovery. A link that it found reliable stays reliable while its share is at least
            `leave`, so that links near the limit do not flip back and forth.
        leave: the share below which a reliable link becomes unreliable.
    """
    if ages.ndim != 3 or ages.shape[1:] != links.shape or not len(ages):
        raise UserError(
            f"ages of shape {tuple(ages.shape)} do not fit links of shape {tuple(links.shape)}; "
            "give one n x n matrix of ages for each of 1 or more steps"
        )
    pattern = Links.from_mask(links)
    listed = ages[:, pattern.receivers, pattern.senders]
    return discover_on(listed, pattern, tolerance=tolerance, share=share, previous=previous, leave=leave)


def discover_on(
    ages: Int[Tensor, "steps e"],
    links: Links,
    *,
    tolerance: int = 0,
    share: float = 0.9,
    previous: Discovery | None = None,
    leave: float = 0.7,
) -> Discovery:
    """Find the clusters in the ages on a list of links; see `discover`."""
    current = (ages >= 0) & (ages <= tolerance)
    needed = torch.full((len(links),), share, dtype=torch.float64)
    if previous is not None:
        needed[previous.reliable_links.find(links.receivers, links.senders) >= 0] = min(share, leave)
    one_way = current.double().mean(dim=0) >= needed
    reliable = links.part(one_way & one_way[links.reverse])
    members: dict[int, list[int]] = {}
    for agent, number in enumerate(reliable.components().tolist()):
        members.setdefault(number, []).append(agent)
    late = ages[:, ~one_way]
    late = late[late > tolerance]  # an unreliable link may be current at times; tau measures it when it is late
    tau = round(float(np.median(late.numpy()))) if len(late) else 0
    return Discovery(tuple(sorted(map(tuple, members.values()))), tau, reliable)


def broadcast(network: Network, seed: int, steps: int | None = None) -> Discovery:
    """Let every agent send over all its links at every step, observe the ages, and discover the clusters.

    The first `largest_age` steps are dropped: some first messages are still under way.

    Args:
        network: the network to observe.
        seed: the random seed of the delays.
        steps: the number of steps to observe; None means twice the largest age plus 50.
    """
    arrivals = Arrivals(network.changed(schedule=None), seed, purpose="broadcast")
    if steps is None:
        steps = 2 * arrivals.largest_age + 50
    if steps <= arrivals.largest_age:
        raise UserError(
            f"a broadcast of {steps} steps sees no settled ages; give more than {arrivals.largest_age} steps"
        )
    ages = torch.stack([arrivals.advance_list(step) for step in range(steps)])
    return discover_on(ages[arrivals.largest_age :], network.pattern, tolerance=network.reliable_delay)
