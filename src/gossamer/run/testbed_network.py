"""The network that a rule sees on a testbed: its delay is the age of messages, in steps, that the testbed implies."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from gossamer.algorithms import Algorithm
from gossamer.algorithms.message_parts import bytes_on_links
from gossamer.errors import UserError
from gossamer.network import Delay, Links, Network, PerLink
from gossamer.network.delay import Mask, Sampled
from gossamer.shapes import Bool, Int, Tensor
from gossamer.testbed import Testbed
from gossamer.testbed.implied_ages import implied_ages

MOST_LISTED_DENSE = 512  # agents; a larger network has no matrix of delays


@dataclass(frozen=True, eq=False)
class ListedDelay(Delay):
    """A constant delay for each link of one pattern, as a list: for many agents with few links."""

    steps: Int[Tensor, " e"]
    name: str

    covers_every_link: ClassVar[bool] = True

    @property
    def largest(self) -> int:
        return int(self.steps.max()) if len(self.steps) else 0

    @property
    def num_values(self) -> float:
        return float(len(self.steps.unique()))

    def sample(self, step: int, state: Tensor, links: Mask, generator: torch.Generator) -> Sampled:
        return self.steps, state

    def sample_list(self, step: int, state: Tensor, links: Links, generator: torch.Generator) -> Sampled:
        return self.steps, state

    def late_list(self, links: Links) -> Bool[Tensor, " e"]:
        return self.steps > 0

    def check_list(self, links: Links) -> None:
        if len(self.steps) != len(links):
            raise UserError(f"{len(self.steps)} delays for {len(links)} links; give one for each")

    def spec(self) -> str:
        return self.name


def network_on(
    bed: Testbed, network: Network, algorithm: Algorithm, *, size: int, itemsize: int, plain: bool
) -> Network:
    """Return the network with the delay that the testbed implies for this rule's messages of `size` parameters."""
    bed.check_network(network.num_agents)
    if network.schedule is not None and network.schedule.has_absences:
        raise UserError(
            f"schedule '{network.schedule.spec()}' has absences in steps, but a testbed has seconds; give the testbed "
            "a schedule of its own"
        )
    if algorithm.votes:
        raise UserError(
            f"{algorithm.name} with these options needs all agents' votes at every step, but agents on a testbed have "
            "steps of their own; use scope=agent, or a delay in steps"
        )
    bare = network.changed(loss=0.0, reliable_delay=0)
    if algorithm.waits:
        return bare.without_delay()
    sizes = bed.scaled(bytes_on_links(algorithm, bare, size, itemsize, plain=plain), size * itemsize)
    ages = torch.as_tensor(implied_ages(bed, bare.pattern, sizes), dtype=torch.int64)
    ages = torch.where(ages <= bed.tolerance, 0, ages).clamp(max=bed.max_age)
    name = f"testbed:{bed.spec}"
    if network.num_agents > MOST_LISTED_DENSE:
        return bare.changed(delay=ListedDelay(ages, name))
    return bare.changed(delay=PerLink(bare.pattern.matrix(ages), name))
