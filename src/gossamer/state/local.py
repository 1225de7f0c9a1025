"""The local optimizer of an agent: SGD with momentum and weight decay, and a learning-rate schedule."""

import dataclasses
import math
from dataclasses import dataclass

import torch

from gossamer.errors import UserError, read_number, unknown_name
from gossamer.shapes import Bool, Float, Tensor


@dataclass(frozen=True, kw_only=True)
class LocalOptimizer:
    """SGD as torch.optim.SGD defines it, on stacked agents or one tensor.

    u = g + wd x; m = momentum m + u; v = m, or u + momentum m with Nesterov.
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    frozen: Bool[Tensor, " d"] | None = dataclasses.field(default=None, compare=False)  # without weight decay

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise UserError(f"momentum must lie in [0, 1), got {self.momentum}; use for example 0.9")
        if not 0 <= self.weight_decay < math.inf:
            raise UserError(f"weight decay must be 0 or more, got {self.weight_decay}; use for example 1e-4")
        if self.nesterov and not self.momentum:
            raise UserError("nesterov needs momentum above 0, got 0; add momentum 0.9 or drop nesterov")

    @property
    def plain(self) -> bool:
        """Whether the direction is the gradient itself."""
        return not self.momentum and not self.weight_decay

    def direction(
        self, g: Float[Tensor, "*shape"], x: Float[Tensor, "*shape"], memory: Float[Tensor, "*shape"] | None
    ) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"] | None]:
        """Return the direction v and the new momentum buffer (None without momentum)."""
        u = torch.add(g, x, alpha=self.weight_decay) if self.weight_decay else g
        if self.weight_decay and self.frozen is not None:
            u = u.masked_fill(self.frozen, 0)
        if not self.momentum:
            return u, None
        # A copy: a CUDA graph overwrites its gradient at the next step.
        memory = u.clone() if memory is None else self.momentum * memory + u
        return (u + self.momentum * memory if self.nesterov else memory), memory


@dataclass(frozen=True)
class Schedule:
    """The learning rate at each step of a run.

    `text` is 'constant', 'cosine' (down to 0), or 'step:0.5,0.75' (multiply by gamma after 0.5 and 0.75 of the run). A
    milestone of 1 or more is an epoch: 'step:160' drops at epoch 160. 'step:160,gamma=0.2' sets gamma (default 0.1).
    """

    lr: float
    text: str = "constant"
    steps: int = 1
    steps_per_epoch: int = 1
    warmup_epochs: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.lr < math.inf:
            raise UserError(f"lr must be positive and finite, got {self.lr}; use for example 0.05")
        if not 0 <= self.warmup_epochs < math.inf:
            raise UserError(f"warmup must be 0 epochs or more, got {self.warmup_epochs}")
        # Checks the text, which is read only after the warm-up.
        self.at(math.ceil(self.warmup_epochs * self.steps_per_epoch))

    def at(self, step: int) -> float:
        """Return the learning rate of this step."""
        warmup = self.warmup_epochs * self.steps_per_epoch
        if step < warmup:
            return self.lr * (step + 1) / math.ceil(warmup)
        kind, _, rest = self.text.partition(":")
        if self.text == "constant":
            return self.lr
        if self.text == "cosine":
            share = (step - warmup) / max(1.0, self.steps - warmup)
            return self.lr * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
        if kind == "step":
            gamma, milestones = self._milestones(rest)
            return self.lr * gamma ** sum(step >= milestone for milestone in milestones)
        raise unknown_name("schedule", self.text, ["constant", "cosine", "step:0.5,0.75"])

    def _milestones(self, rest: str) -> tuple[float, list[float]]:
        gamma, milestones = 0.1, []
        for part in rest.split(","):
            if part.startswith("gamma="):
                gamma = read_number("schedule's gamma", part.removeprefix("gamma="))
                if not 0 < gamma < math.inf:
                    raise UserError(f"schedule '{self.text}' has gamma {gamma}; use a positive number such as 0.1")
                continue
            at = read_number("schedule's milestone", part)
            if not 0 < at < math.inf:
                raise UserError(
                    f"schedule '{self.text}' has milestone {at}; use a share of the run or an epoch above 0"
                )
            milestones.append(at * (self.steps if at < 1 else self.steps_per_epoch))
        return gamma, milestones
