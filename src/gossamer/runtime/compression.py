"""How one part of a message, a vector of d floats, becomes bytes and back.

A message goes to every neighbour at once, the newest one wins, and receivers acknowledge nothing. A sender cannot
know what a receiver holds, so every payload stands alone:

* A *gradient* (kind "gradient": g, v) stands for one step. `topk` sends the largest |g + e|, the receiver reads zero
  elsewhere, and e keeps the rest for later messages. A lost message is lost, as any lost gradient.
* A *state* (kind "state": x and all else that is absolute) must never be sent as a difference: one lost message would
  leave an error for ever. `topk` sends values as they are, where the state has moved most since they were last sent,
  and the receiver writes them over the row that it holds. A value that was lost may not move again, so a block of the
  state goes with each message whether it has moved or not, and all blocks, about 4 / share, in a round of messages.
  Each round begins at a random block: a receiver that takes, say, every second message would otherwise miss the same
  half for ever. So a row is a mixture of ages, and where a message is missed with probability p, a coordinate has
  missed m whole rounds with probability p^m at most.

A receiver that hears a sender for the first time has holes in its row: `Decoder.complete` says whether every
coordinate has been set. That takes two rounds at most without loss, and m with it but for a chance of 4 p^m / share.
A sender that restarts alone should begin with empty memory, not with that of a checkpoint: the other agents hold
newer values. Saved memory is for runs in which all agents continue from the same step.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from gossamer.errors import UserError, read_number, unknown_name
from gossamer.runtime.message import Malformed
from gossamer.seeding import generator
from gossamer.shapes import Float, Tensor

CODECS = {
    "none": "every number unchanged: none",
    "bf16": "every number rounded to two bytes: bf16",
    "int8": "every number in one byte, the rounding error carried to the next message: int8",
    "topk": "this share of the numbers, the largest or most changed: topk:0.01",
}
KINDS = ("state", "gradient")
BLOCK = 2048  # numbers that share a scale in int8
_ALIGNMENT = 8  # bytes that each section of a payload is filled up to, so that any number may begin behind it

Sections = tuple[tuple[int, torch.dtype], ...]  # how many numbers of which type follow each other in a payload


class _Side:
    """Base of both sides of a part: the sections of a payload, and tensors kept from one message to the next."""

    def __init__(self, sections: Sections, size: int, dtype: torch.dtype) -> None:
        self.sections = sections
        self.length = sum(_padded(count * dtype.itemsize) for count, dtype in sections)  # bytes of every payload
        self.kept = self._start(size, dtype)

    def _start(self, size: int, dtype: torch.dtype) -> dict[str, Tensor]:
        """Return empty memory."""
        return {}

    def state_dict(self) -> dict[str, Tensor]:
        """Return what is kept, as copies."""
        return {name: value.clone() for name, value in self.kept.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        for name, value in self.kept.items():
            if name not in state or state[name].shape != value.shape:
                raise UserError(f"no '{name}' {tuple(value.shape)} in the saved state; use the same compression")
            value.copy_(state[name])


def _padded(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT


class Encoder(_Side, ABC):
    """The sender's side of one part."""

    def encode(self, vector: Float[Tensor, " d"]) -> list[Tensor]:
        """Return contiguous tensors whose bytes, one after another, are the payload. The vector is not changed."""
        fill = torch.zeros(_ALIGNMENT, dtype=torch.uint8)
        made = ((values, fill[: -values.nbytes % _ALIGNMENT]) for values in self._make(vector))
        return [part for section in made for part in section if len(part)]

    @abstractmethod
    def _make(self, vector: Float[Tensor, " d"]) -> tuple[Tensor, ...]:
        """Return the sections."""


class Decoder(_Side, ABC):
    """The receiver's side of one part of one sender."""

    @property
    def complete(self) -> bool:
        """Whether every coordinate of `out` has been set at least once: always so, unless "seen" is kept."""
        return all(seen.numpy().all() for seen in self.kept.values())  # torch takes thirty times as long

    def decode(self, payload: Tensor, out: Float[Tensor, " d"]) -> None:
        """Write an intact payload into `out`, which must be the same row for all messages of a sender.

        A payload that is not of this codec raises `Malformed`, and `out` stays as it was.
        """
        if payload.numel() != self.length:
            raise Malformed(f"a part of {payload.numel()} bytes instead of {self.length}")
        values, position = [], 0
        for count, dtype in self.sections:
            part = payload[position : position + count * dtype.itemsize]
            position += _padded(len(part))
            # torch reads a wide number only where a multiple of its size has gone before.
            values.append((part.clone() if part.storage_offset() % dtype.itemsize else part).view(dtype))
        self._write(out, *values)

    @abstractmethod
    def _write(self, out: Float[Tensor, " d"], *sections: Tensor) -> None:
        """Write the sections into `out`."""


class Codec(ABC):
    """How parts are compressed; all agents of a run use the same codec."""

    def encoder(self, kind: str, size: int, dtype: torch.dtype) -> Encoder:
        """Return an encoder with empty memory for vectors of this size; `kind` is one of KINDS."""
        sections, side, _ = self._form(kind, size, dtype)
        return side(sections, size, dtype)

    def decoder(self, kind: str, size: int, dtype: torch.dtype) -> Decoder:
        """Return the decoder for what such an encoder makes."""
        sections, _, side = self._form(kind, size, dtype)
        return side(sections, size, dtype)

    @abstractmethod
    def _form(self, kind: str, size: int, dtype: torch.dtype) -> tuple[Sections, type[Encoder], type[Decoder]]:
        """Return the sections of a payload, and the classes of its encoder and decoder."""


def parse_codec(text: str) -> Codec:
    """Make a codec from a text of CODECS."""
    name, _, rest = text.strip().partition(":")
    if name not in CODECS:
        raise unknown_name("compression", name, CODECS)
    if bool(rest) != (name == "topk"):
        raise UserError(f"cannot read compression '{text}'; write it like {CODECS[name].rpartition(' ')[2]}")
    if rest:
        return TopK(read_number(f"the share in compression '{text}'", rest))
    return Int8() if name == "int8" else Cast(None if name == "none" else torch.bfloat16)


@dataclass(frozen=True)
class Cast(Codec):
    """The numbers as they are, without a copy, or the nearest ones of another type."""

    sent: torch.dtype | None

    def _form(self, kind: str, size: int, dtype: torch.dtype) -> tuple[Sections, type[Encoder], type[Decoder]]:
        return ((size, self.sent or dtype),), _CastEncoder, _CastDecoder


class _CastEncoder(Encoder):
    def encode(self, vector: Float[Tensor, " d"]) -> list[Tensor]:
        """Shortcut: for a small model the general path dominates the time."""
        dtype = self.sections[0][1]
        sent = vector if vector.dtype == dtype else vector.to(dtype)
        return [sent] if sent.nbytes == self.length else super().encode(vector)

    def _make(self, vector: Float[Tensor, " d"]) -> tuple[Tensor, ...]:
        return (vector.to(self.sections[0][1]),)


class _CastDecoder(Decoder):
    def decode(self, payload: Tensor, out: Float[Tensor, " d"]) -> None:
        """Shortcut for an aligned payload."""
        count, dtype = self.sections[0]
        if payload.numel() == count * dtype.itemsize == self.length and payload.storage_offset() % dtype.itemsize == 0:
            out.copy_(payload.view(dtype))
        else:
            super().decode(payload, out)

    def _write(self, out: Float[Tensor, " d"], *sections: Tensor) -> None:
        out.copy_(sections[0])


@dataclass(frozen=True)
class Int8(Codec):
    """Whole numbers from -127 to 127 and a scale for each block; the rounding error is added to the next vector."""

    def _form(self, kind: str, size: int, dtype: torch.dtype) -> tuple[Sections, type[Encoder], type[Decoder]]:
        return ((-(-size // BLOCK), torch.float32), (size, torch.int8)), _Int8Encoder, _Int8Decoder


class _Int8Encoder(Encoder):
    def _start(self, size: int, dtype: torch.dtype) -> dict[str, Tensor]:
        return {"error": torch.zeros(-(-size // BLOCK), BLOCK, dtype=dtype)}

    def _make(self, vector: Float[Tensor, " d"]) -> tuple[Tensor, ...]:
        blocks = self.kept["error"]
        blocks.view(-1)[: len(vector)] += vector
        scale = (blocks.abs().amax(dim=1, keepdim=True) / 127).float()
        broken = ~scale.isfinite()
        blocks.masked_fill_(broken, 0)  # or the error would never be finite again
        # A scale of 0: a block of zeros, or of numbers so small that they wait in the error.
        unit = scale.masked_fill(broken | (scale == 0), 1)
        whole = (blocks / unit).round_().clamp_(-127, 127)
        blocks.sub_(whole * unit)
        return scale.masked_fill_(broken, torch.nan).view(-1), whole.view(-1)[: len(vector)].to(torch.int8)


class _Int8Decoder(Decoder):
    def _write(self, out: Float[Tensor, " d"], *sections: Tensor) -> None:
        scale, whole, inside = sections[0].to(out.dtype), sections[1], len(out) // BLOCK * BLOCK
        out[:inside].view(-1, BLOCK).copy_(whole[:inside].view(-1, BLOCK) * scale[: inside // BLOCK, None])
        out[inside:] = whole[inside:] * scale[-1]


@dataclass(frozen=True)
class TopK(Codec):
    """A share of the numbers, at least one: see the module's docstring."""

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UserError(f"the share that topk sends must lie above 0 and be at most 1, got {self.share}; try 0.01")

    def _form(self, kind: str, size: int, dtype: torch.dtype) -> tuple[Sections, type[Encoder], type[Decoder]]:
        if kind not in KINDS:
            raise unknown_name("kind of part", kind, KINDS)
        if size > 2**31:  # indices travel as int32
            raise UserError(f"topk can send parts of 2147483648 numbers at most, got {size}; use bf16 or int8")
        largest = max(1, round(self.share * size))
        if kind == "gradient":
            return ((largest, torch.int32), (largest, dtype)), _GradientEncoder, _GradientDecoder
        block = -(-largest // 4)
        largest = min(largest, size - block)
        sections = ((1, torch.int64), (block, dtype), (largest, torch.int32), (largest, dtype))
        return sections, _StateEncoder, _StateDecoder


class _GradientEncoder(Encoder):
    def _start(self, size: int, dtype: torch.dtype) -> dict[str, Tensor]:
        return {"error": torch.zeros(size, dtype=dtype)}

    def _make(self, vector: Float[Tensor, " d"]) -> tuple[Tensor, ...]:
        error = self.kept["error"].add_(vector)
        chosen = error.abs().topk(self.sections[0][0], sorted=False).indices
        values = error[chosen]
        error[chosen] = 0
        if not values.isfinite().all():  # such values count as the largest, so error holds none otherwise
            error.nan_to_num_(0, 0, 0)
        return chosen.int(), values


class _GradientDecoder(Decoder):
    def _write(self, out: Float[Tensor, " d"], *sections: Tensor) -> None:
        chosen = _indices(sections[0], len(out))
        out.zero_()[chosen] = sections[1]


class _StateEncoder(Encoder):
    def _start(self, size: int, dtype: torch.dtype) -> dict[str, Tensor]:
        never = torch.full((size,), torch.nan, dtype=dtype)  # NaN: moved more than any other
        return {"sent": never, "count": torch.zeros((), dtype=torch.int64)}

    def _make(self, vector: Float[Tensor, " d"]) -> tuple[Tensor, ...]:
        sent, count = self.kept["sent"], self.kept["count"]
        block, largest = self.sections[1][0], self.sections[2][0]
        start = _block_start(int(count), len(vector), block)
        refreshed = slice(start, start + block)
        moved = (vector - sent).abs_()
        moved[refreshed] = -1  # goes anyway
        chosen = moved.topk(largest, sorted=False).indices
        sent[refreshed], sent[chosen] = vector[refreshed], vector[chosen]
        count += 1
        return torch.tensor([start]), vector[refreshed], chosen.int(), sent[chosen]


class _StateDecoder(Decoder):
    def _start(self, size: int, dtype: torch.dtype) -> dict[str, Tensor]:
        return {"seen": torch.zeros(size, dtype=torch.bool)}

    def _write(self, out: Float[Tensor, " d"], *sections: Tensor) -> None:
        block, seen = len(sections[1]), self.kept["seen"]
        start = int(_indices(sections[0], len(out) - block + 1))
        refreshed, chosen = slice(start, start + block), _indices(sections[2], len(out))
        out[refreshed], out[chosen] = sections[1], sections[3]
        seen[refreshed] = seen[chosen] = True


def _block_start(count: int, size: int, block: int) -> int:
    """Return where the block of this message begins: each block once a round, the first one random."""
    blocks = -(-size // block)
    round_number, position = divmod(count, blocks)
    first = int(torch.randint(blocks, (), generator=generator(0, "compression", round_number)))
    return min((first + position) % blocks * block, size - block)


def _indices(sent: Tensor, size: int) -> Tensor:
    """Return indices to write to, all of them inside."""
    if len(sent) and not 0 <= int(sent.min()) <= int(sent.max()) < size:
        raise Malformed(f"an index outside of {size}")
    return sent.long()
