"""Vectors to compress, and both sides of a codec with the row that is decoded into."""

import pytest
import torch

from gossamer.runtime.compression import BLOCK, parse_codec

TEXTS = ("none", "bf16", "int8", "topk:0.1", "topk:1")
SIZES = (1, 2, 7, 64, BLOCK - 1, BLOCK, BLOCK + 1, 5003)
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def vectors(size, dtype=torch.float64, seed=0):
    """An endless row of random vectors of very different scales."""
    draws = torch.Generator().manual_seed(seed)
    scale = torch.logspace(-3, 3, size, dtype=torch.float64)
    while True:
        yield (torch.randn(size, generator=draws, dtype=torch.float64) * scale).to(dtype)


def payload_of(encoder, vector):
    parts = encoder.encode(vector)
    assert all(part.is_contiguous() and part.device.type == "cpu" for part in parts)
    payload = torch.cat([part.view(torch.uint8) for part in parts])
    assert len(payload) == encoder.length
    return payload


class Pair:
    """An encoder, a decoder, and the row that is decoded into."""

    def __init__(self, text, kind="state", size=64, dtype=torch.float64):
        codec = parse_codec(text)
        self.encoder, self.decoder = codec.encoder(kind, size, dtype), codec.decoder(kind, size, dtype)
        self.out = torch.full((size,), 99.0, dtype=dtype)

    def send(self, vector, arrives=True):
        payload = payload_of(self.encoder, vector)
        if arrives:
            self.decoder.decode(payload, self.out)
        return self.out
