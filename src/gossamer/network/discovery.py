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
    """What a broadcast finds out: the clusters, the usual delay between them, and the reliable links."""

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
    """Find the clusters in observed ages (NOTHING, -1, is no message).

    A direction of a link is reliable when at least `share` of its observations are ages 0..tolerance, and a
    link when both directions are. Clusters are the connected components of the reliable links. `tau` is the
    rounded median age of the late messages on the directions that are not reliable, and 0 when there are none.

    With a `previous` discovery a link that was reliable stays so while the share is `leave` or more, so that links
    at the limit do not change sides all the time.
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

    The first `largest_age` steps are dropped: until then some first messages are still under way.
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
