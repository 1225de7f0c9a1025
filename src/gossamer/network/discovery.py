"""Clusters and delay from observed ages: which links are reliable, and how late the others are."""

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
import torch

from gossamer.errors import UserError
from gossamer.network.arrivals import Arrivals
from gossamer.network.network import Network
from gossamer.shapes import Bool, Int, Tensor


@dataclass(frozen=True, eq=False)
class Discovery:
    """What a broadcast finds out.

    Attributes:
        clusters: agents that are joined by reliable links.
        tau: the usual delay of the other links, in steps.
        reliable: which links are reliable.
    """

    clusters: tuple[tuple[int, ...], ...]
    tau: int
    reliable: Bool[Tensor, "n n"]


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

    A direction of a link is reliable when at least `share` of its observations are ages 0..tolerance, and a
    link when both directions are. Clusters are the connected components of the reliable links. `tau` is the
    rounded median age of the late messages on the directions that are not reliable, and 0 when there are none.

    Args:
        ages: at each step, for receiver and sender, how old the newest message is; -1 is no message.
        links: who is linked with whom.
        tolerance: the largest age that counts as current.
        share: of the observations that must be current for a link to be reliable.
        previous: an earlier discovery: a link that was reliable in it stays so while the share is `leave` or more, so
            that links at the limit do not change sides all the time.
        leave: the share below which a link is no longer reliable.
    """
    if ages.ndim != 3 or ages.shape[1:] != links.shape or not len(ages):
        raise UserError(
            f"ages of shape {tuple(ages.shape)} do not fit links of shape {tuple(links.shape)}; "
            "give one n x n matrix of ages for each of 1 or more steps"
        )
    current = (ages >= 0) & (ages <= tolerance)
    needed = torch.full(links.shape, share, dtype=torch.float64)
    if previous is not None:
        needed[previous.reliable] = min(share, leave)
    one_way = links & (current.double().mean(dim=0) >= needed)
    reliable = one_way & one_way.T
    components: Sequence[set[int]] = list(nx.connected_components(nx.from_numpy_array(reliable.numpy())))
    late = ages[:, links & ~one_way]
    late = late[late > tolerance]  # such a link may be current at times; tau is how late it is when it is late
    tau = round(float(np.median(late.numpy()))) if len(late) else 0
    return Discovery(tuple(sorted(tuple(sorted(component)) for component in components)), tau, reliable)


def broadcast(network: Network, seed: int, steps: int | None = None) -> Discovery:
    """Let every agent send at every step, watch the ages, and discover the clusters.

    The first steps are dropped, as many as the largest age: until then some first messages are still under way.

    Args:
        network: whose links are watched.
        seed: fixes the delays that are drawn.
        steps: how long to watch; None: twice the largest age and 50.
    """
    arrivals = Arrivals(network, seed, purpose="broadcast")
    if steps is None:
        steps = 2 * arrivals.largest_age + 50
    if steps <= arrivals.largest_age:
        raise UserError(
            f"a broadcast of {steps} steps sees no settled ages; give more than {arrivals.largest_age} steps"
        )
    ages = torch.stack([arrivals.advance(step) for step in range(steps)])
    return discover(ages[arrivals.largest_age :], network.links, tolerance=network.reliable_delay)
