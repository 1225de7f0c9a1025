"""The mini-batch of every agent at a step: its examples, their augmentation and normalisation.

Draws are made on the CPU and depend only on (seed, agent, step), so a resumed run and another device see the same
batches. Cropping and normalising are pure functions of tensors, which a CUDA graph can record.
"""

from dataclasses import dataclass, field

import torch

from gossamer.seeding import generator
from gossamer.shapes import Float, Int, Shaped, Tensor

BLOCK = 64  # steps whose draws are made at once, which is faster than step by step
PAD = 4  # zeros on each side before cropping, as usual for CIFAR
_OFFSETS = 2 * PAD + 1


class _Blocks:
    """Whole numbers of every agent at every step, made for a block of 64 steps at once; the latest block is kept."""

    def __init__(self) -> None:
        self._held: tuple[int, Tensor] | None = None

    def at(self, step: int) -> Int[Tensor, "n b ..."]:
        """Return the numbers of this step."""
        return self.block(step // BLOCK)[step % BLOCK]

    def block(self, index: int) -> Int[Tensor, "64 n b ..."]:
        """Return the numbers of the 64 steps from step 64 * index."""
        if self._held is None or self._held[0] != index:
            self._held = index, self._make(index)
        return self._held[1]

    def _make(self, index: int) -> Int[Tensor, "64 n b ..."]:
        raise NotImplementedError


class Batches(_Blocks):
    """The indices of every agent's batch. Each goes through its shard in a new random order every pass.

    A batch may span two passes.
    """

    def __init__(self, shards: list[Tensor], batch: int, seed: int, purpose: str = "batches") -> None:
        super().__init__()
        self.shards, self.batch, self.seed, self.purpose = shards, batch, seed, purpose
        self._orders: dict[int, tuple[int, Tensor]] = {}  # agent -> (pass, order of its shard), the latest one only

    def _make(self, index: int) -> Int[Tensor, "64 n b"]:
        return torch.stack([self.of_agent(agent, index) for agent in range(len(self.shards))], dim=1)

    def of_agent(self, agent: int, index: int) -> Int[Tensor, "64 b"]:
        """Return one agent's numbers of the 64 steps from step 64 * index."""
        size, length = len(self.shards[agent]), BLOCK * self.batch
        pieces, position, end = [], index * length, (index + 1) * length
        while position < end:
            number, offset = divmod(position, size)
            piece = self._order(agent, number)[offset : offset + end - position]
            pieces.append(piece)
            position += len(piece)
        return self.shards[agent][torch.cat(pieces)].view(BLOCK, self.batch)

    def _order(self, agent: int, number: int) -> Tensor:
        held = self._orders.get(agent)
        if held is None or held[0] != number:
            draws = generator(self.seed, self.purpose, agent, number)
            held = self._orders[agent] = number, torch.randperm(len(self.shards[agent]), generator=draws)
        return held[1]


class AugmentDraws(_Blocks):
    """(dy, dx, flip) of each image of every agent's batch: offsets in 0..8 into the padded image, and 0 or 1."""

    def __init__(self, seed: int, num_agents: int, batch: int, purpose: str = "augment") -> None:
        super().__init__()
        self.seed, self.num_agents, self.batch, self.purpose = seed, num_agents, batch, purpose

    def _make(self, index: int) -> Int[Tensor, "64 n b 3"]:
        """Draw one whole number per image for 64 steps at once; a generator per step would be slow."""
        codes = torch.empty(BLOCK, self.num_agents, self.batch, dtype=torch.uint8)
        for agent in range(self.num_agents):
            codes[:, agent] = self._codes(agent, index)
        return _decoded(codes)

    def of_agent(self, agent: int, index: int) -> Int[Tensor, "64 b 3"]:
        """Return one agent's numbers of the 64 steps from step 64 * index."""
        return _decoded(self._codes(agent, index))

    def _codes(self, agent: int, index: int) -> Shaped[Tensor, "64 b"]:
        draws, shape = generator(self.seed, self.purpose, agent, index), (BLOCK, self.batch)
        return torch.randint(_OFFSETS * _OFFSETS * 2, shape, generator=draws, dtype=torch.uint8)


def _decoded(codes: Shaped[Tensor, "*shape"]) -> Int[Tensor, "*shape 3"]:
    offsets = codes // 2
    return torch.stack([offsets // _OFFSETS, offsets % _OFFSETS, codes % 2], dim=-1).to(torch.int8)


def crop_flip(images: Tensor, draws: Int[Tensor, "n b 3"]) -> Tensor:
    """Pad images [n, b, C, H, W] with 4 zeros per side, crop at (dy, dx) to the old size, mirror if flip is 1.

    Output pixel (y, x) is input pixel (y + dy - 4, x' + dx - 4), where x' is x, or W - 1 - x if flipped; outside: 0.
    """
    height, width = images.shape[-2:]
    dy, dx, flip = draws.to(device=images.device, dtype=torch.int64)[..., None].unbind(dim=-2)
    x = torch.arange(width, device=images.device)
    rows = torch.arange(height, device=images.device) + dy - PAD
    columns = torch.where(flip == 1, width - 1 - x, x) + dx - PAD
    inside = ((rows >= 0) & (rows < height))[..., :, None] & ((columns >= 0) & (columns < width))[..., None, :]
    sources = rows.clamp(0, height - 1)[..., :, None] * width + columns.clamp(0, width - 1)[..., None, :]
    pixels = images.flatten(-2)
    moved = pixels.gather(-1, sources.flatten(-2)[:, :, None].expand_as(pixels)).view(images.shape)
    return moved * inside[:, :, None]


@dataclass(frozen=True)
class Normalize:
    """Converts bytes to numbers: (pixel / 255 - mean) / std, per channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    _constants: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __call__(self, images: Tensor, dtype: torch.dtype) -> Float[Tensor, "..."]:
        """Return images [..., C, H, W] of bytes as numbers of this type; not inside torch.func's transforms."""
        # Arithmetic in bfloat16 would lose several grey levels, so only the result is rounded.
        exact = torch.promote_types(dtype, torch.float32)
        scale, shift = self._on(images.device, exact)
        return images.to(exact, copy=True).mul_(scale).add_(shift).to(dtype)  # in place: one large tensor less

    def _on(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Copy the constants to a device once: a CUDA graph cannot record a copy from the CPU."""
        if (device, dtype) not in self._constants:
            mean, std = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (self.mean, self.std))
            scale, shift = (value.to(device=device, dtype=dtype) for value in (1 / (255 * std), -mean / std))
            self._constants[device, dtype] = scale, shift
        return self._constants[device, dtype]
