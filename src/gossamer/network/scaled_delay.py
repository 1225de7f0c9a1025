"""The delays of another model in other units, such as epochs."""

from dataclasses import dataclass

import torch

from gossamer.network.delay import Delay, Mask, Sampled
from gossamer.network.links import Links
from gossamer.shapes import Bool, Tensor


@dataclass(frozen=True, eq=False)
class Scaled(Delay):
    """The delays of another model times a whole number."""

    base: Delay
    factor: int

    @property
    def covers_every_link(self) -> bool:  # type: ignore[override]
        return self.base.covers_every_link

    @property
    def largest(self) -> int:
        return self.base.largest * self.factor

    @property
    def typical(self) -> int:
        return self.base.typical * self.factor

    @property
    def num_values(self) -> float:
        return self.base.num_values

    def start(self, links: Mask, generator: torch.Generator) -> Tensor:
        return self.base.start(links, generator)

    def sample(self, step: int, state: Tensor, links: Mask, generator: torch.Generator) -> Sampled:
        delays, state = self.base.sample(step, state, links, generator)
        return delays * self.factor, state

    def late_links(self, links: Mask) -> Mask:
        return self.base.late_links(links)

    def check(self, links: Mask) -> None:
        self.base.check(links)

    def start_list(self, links: Links, generator: torch.Generator) -> Tensor:
        return self.base.start_list(links, generator)

    def sample_list(self, step: int, state: Tensor, links: Links, generator: torch.Generator) -> Sampled:
        delays, state = self.base.sample_list(step, state, links, generator)
        return delays * self.factor, state

    def late_list(self, links: Links) -> Bool[Tensor, " e"]:
        return self.base.late_list(links)

    def check_list(self, links: Links) -> None:
        self.base.check_list(links)

    def spec(self) -> str:
        return self.base.spec()

    def as_json(self) -> str:
        return f"{self.base.spec()} x {self.factor} steps"
