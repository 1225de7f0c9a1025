"""The layout of a payload: the parts that a rule declares, one after another, each compressed by its codec."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from gossamer.algorithms import Algorithm
from gossamer.algorithms.message_parts import part_dtype, part_size, parts_sent
from gossamer.runtime.compression import Codec, Decoder, Encoder, parse_codec
from gossamer.shapes import Float, Tensor


@dataclass(frozen=True)
class Part:
    """One vector of a message."""

    name: str
    size: int
    dtype: torch.dtype
    codec: Codec

    @property
    def kind(self) -> str:
        """The codec's kind: gradients average out, anything else is absolute."""
        return "gradient" if self.name in ("g", "v") else "state"


class PayloadLayout:
    """The parts of a message of one rule and one model, and a number that all agents of a run share."""

    def __init__(
        self,
        algorithm: Algorithm,
        segments: tuple[int, ...],
        dtype: torch.dtype,
        *,
        plain: bool,
        compress: str = "none",
    ) -> None:
        """Lay out the messages of a model whose tensors have these lengths."""
        size = sum(segments)
        exact, codec = parse_codec("none"), parse_codec(compress)
        never_rounded = algorithm.numbers | algorithm.totals
        self.parts = [
            Part(
                name,
                part_size(algorithm, name, size),
                part_dtype(algorithm, name, dtype),
                exact if name in never_rounded else codec,
            )
            for name in parts_sent(algorithm.message, plain=plain)
        ]
        self.lengths = [part.codec.encoder(part.kind, part.size, part.dtype).length for part in self.parts]
        self.length = sum(self.lengths)  # the bytes of a payload
        text = ";".join(f"{part.name},{part.size},{part.dtype},{part.codec}" for part in self.parts)
        self.number = zlib.crc32(f"{algorithm.name};{segments};{text}".encode())


class PayloadWriter:
    """Encodes an agent's vectors into the tensors of a payload; keeps the codecs' memory."""

    def __init__(self, layout: PayloadLayout) -> None:
        self.layout = layout
        self._encoders: dict[str, Encoder] = {
            part.name: part.codec.encoder(part.kind, part.size, part.dtype) for part in layout.parts
        }

    def write(self, vectors: Mapping[str, Float[Tensor, "1 _"]]) -> list[Tensor]:
        """Return contiguous tensors on the CPU."""
        pieces: list[Tensor] = []
        for part in self.layout.parts:
            vector = vectors[part.name].reshape(-1)
            if vector.dtype != part.dtype:  # small models notice the time of a `to` without effect
                vector = vector.to(part.dtype)
            pieces += self._encoders[part.name].encode(vector)
        return pieces


class PayloadReader:
    """Writes one peer's payloads into the rows that are kept for it."""

    def __init__(self, layout: PayloadLayout) -> None:
        self.layout = layout
        self._decoders: dict[str, Decoder] = {
            part.name: part.codec.decoder(part.kind, part.size, part.dtype) for part in layout.parts
        }
        # Whether a payload changes only parts of the rows, so that a torn one would do lasting harm.
        self.builds_on_rows = any(decoder.kept for decoder in self._decoders.values())

    @property
    def complete(self) -> bool:
        """Whether every number of the rows has been sent at least once, or was assumed."""
        return not self.builds_on_rows or all(decoder.complete for decoder in self._decoders.values())

    def assume(self, x: Float[Tensor, " d"], rows: Mapping[str, Float[Tensor, " _"]]) -> None:
        """Assume the peer's state equals this agent's until it arrives, so that it pulls nowhere."""
        decoder = self._decoders.get("x")
        if decoder is not None and decoder.kept:
            rows["x"].copy_(x)
            decoder.load_state_dict({name: torch.ones_like(seen) for name, seen in decoder.kept.items()})

    def read(self, payload: Tensor, rows: Mapping[str, Float[Tensor, " _"]]) -> None:
        """Decode a payload into one row a part."""
        begin, parts = 0, self.layout.parts
        if len(parts) == 1:
            self._decoders[parts[0].name].decode(payload, rows[parts[0].name])
            return
        for part, length in zip(parts, self.layout.lengths, strict=True):
            self._decoders[part.name].decode(payload[begin : begin + length], rows[part.name])
            begin += length
