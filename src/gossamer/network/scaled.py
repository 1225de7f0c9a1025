"""A delay counted in a longer unit than a step, such as an epoch."""

from dataclasses import dataclass

import torch

from gossamer.network.delay import Delay
from gossamer.shapes import Bool, Int, Tensor


@dataclass(frozen=True, eq=False)
class Scaled(Delay):
    """Another model's delays times a whole number."""

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

    def start(self, links: Bool[Tensor, "n n"], generator: torch.Generator) -> Tensor:
        return self.base.start(links, generator)

    def sample(
        self, step: int, state: Tensor, links: Bool[Tensor, "n n"], generator: torch.Generator
    ) -> tuple[Int[Tensor, "n n"], Tensor]:
        delays, state = self.base.sample(step, state, links, generator)
        return delays * self.factor, state

    def late_links(self, links: Bool[Tensor, "n n"]) -> Bool[Tensor, "n n"]:
        return self.base.late_links(links)

    def check(self, links: Bool[Tensor, "n n"]) -> None:
        self.base.check(links)

    def spec(self) -> str:
        return self.base.spec()

    def as_json(self) -> str:
        return f"{self.base.spec()} x {self.factor} steps"
