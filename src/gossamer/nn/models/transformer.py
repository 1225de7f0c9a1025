"""A small causal transformer of bytes: predicts the next byte at every position of a text.

Bytes and their positions are embedded and added; each block is x + attention(norm(x)), then x + mlp(norm(x)); a last
norm and a linear layer give the logits. Position t sees bytes 0..t only.
"""

import math

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from gossamer.errors import UserError
from gossamer.nn.models.spec import Spec
from gossamer.shapes import Float, Int, Tensor

BYTES = 256
WIDENING = 4  # the hidden layer of a block's mlp, in widths
START_STD = 0.02


class CausalAttention(nn.Module):
    """Each position's mean of the values at and before it, weighted by softmax(q k / sqrt(width of a head))."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "b t w"]) -> Float[Tensor, "b t w"]:
        """Return the weighted means of the values."""
        pieces = self.query_key_value(x).chunk(3, dim=-1)
        query, key, value = (piece.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2) for piece in pieces)
        # torch.func.vmap has no batching rule for the fast CPU kernel; gradients of GPU kernels may not repeat.
        with sdpa_kernel(SDPBackend.MATH):
            heads = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(heads.transpose(-3, -2).flatten(-2))  # type: ignore[no-any-return]


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)) at each position."""

    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), CausalAttention(width, num_heads), *_dropout(dropout))
        self.mlp = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, WIDENING * width),
            nn.GELU(),
            nn.Linear(WIDENING * width, width),
            *_dropout(dropout),
        )

    def forward(self, x: Float[Tensor, "b t w"]) -> Float[Tensor, "b t w"]:
        """Return the block's output."""
        x = x + self.attention(x)
        return x + self.mlp(x)  # type: ignore[no-any-return]


class Embedding(nn.Module):
    """The sum of the vectors of a byte and of its position."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.byte = nn.Embedding(BYTES, width)
        self.position = nn.Embedding(length, width)

    def forward(self, text: Int[Tensor, "b t"]) -> Float[Tensor, "b t w"]:
        """Return a vector for each byte."""
        positions = torch.arange(text.shape[1], device=text.device)
        return self.byte(text) + self.position(positions)  # type: ignore[no-any-return]


def make_transformer(spec: Spec, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Make a transformer from 'transformer:layers=2,width=64,heads=4,dropout=0.1'; the dropout is 0 unless given."""
    spec.allow(values=("layers", "width", "heads", "dropout"))
    num_layers, width, num_heads = spec.whole("layers", 2), spec.whole("width", 64), spec.whole("heads", 4)
    dropout = spec.share("dropout", 0.0)
    if width % num_heads:
        raise UserError(
            f"model '{spec.text}' has width {width}, which {num_heads} heads do not divide; "
            f"use width={math.ceil(width / num_heads) * num_heads}"
        )
    if len(shape) != 1 or num_classes != BYTES:
        raise UserError(
            f"model '{spec.text}' reads text as bytes, of shape (length,) and {BYTES} classes, got shape {shape} and "
            f"{num_classes} classes; use mlp or cnn"
        )
    blocks = [Block(width, num_heads, dropout) for _ in range(num_layers)]
    net = nn.Sequential(
        Embedding(shape[0], width), *_dropout(dropout), *blocks, nn.LayerNorm(width), nn.Linear(width, BYTES)
    )
    _start(net)
    return net


def _dropout(share: float) -> list[nn.Module]:
    """Return no layer for a share of 0, so that a model without dropout draws no random numbers."""
    return [nn.Dropout(share)] if share else []


def _start(net: nn.Module) -> None:
    """Draw weights from N(0, 0.02^2), so the first logits are near 0; biases start at 0."""
    for layer in net.modules():
        if isinstance(layer, nn.Linear | nn.Embedding):
            nn.init.normal_(layer.weight, std=START_STD)
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)
