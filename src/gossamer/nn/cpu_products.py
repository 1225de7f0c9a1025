"""Products of the agents' matrices on a CPU: all at once by MKL, or large ones agent by agent by oneDNN.

On an AMD EPYC with AVX-512 oneDNN is up to 1.9 times as fast as MKL, from a size on at which a call for each agent
costs little. The choice depends on the processor and the shapes alone: runs repeat byte for byte on one machine.
`python benchmarks/cpu_products.py` measures both.
"""

import functools
import platform
from pathlib import Path

import torch

from gossamer.nn import kernels
from gossamer.shapes import Float, Tensor

LARGE = 3 * 2**20  # multiplications for one agent from which oneDNN is faster
SMALL = 2**18  # multiplications for one agent below which MKL is slow at writing between other numbers


def product(
    a: Float[Tensor, "n m _"],
    b: Float[Tensor, "n _ p"],
    out: Float[Tensor, "n m p"] | None = None,
    *,
    turned: bool = False,
) -> Float[Tensor, "n m p"]:
    """Return a_i b_i for every agent i, in `out` if given, which may be a part of a larger tensor.

    `turned` asks for columns that are contiguous; a product agent by agent does not heed it.
    """
    if by_agent(a, b):
        return _one_by_one(a, b, None, out)
    if out is None:
        return torch.bmm(b.mT, a.mT).mT if turned else torch.bmm(a, b)
    if a.shape[1] * a.shape[2] * b.shape[2] < SMALL:
        return out.copy_(torch.bmm(a, b))
    return torch.bmm(a, b, out=out)


def affine(
    x: Float[Tensor, "n b _"], weight: Float[Tensor, "n out _"], bias: Float[Tensor, "n out"] | None
) -> Float[Tensor, "n b out"]:
    """Return x_i W_i^T + b_i for every agent i."""
    if by_agent(x, weight.mT):
        return _one_by_one(x, weight.mT, bias)
    # Turned, the gradient of the weights comes out in the layout of the weights.
    if bias is None:
        return torch.bmm(weight, x.mT).mT
    return torch.baddbmm(bias[:, :, None], weight, x.mT).mT


def by_agent(a: Float[Tensor, "n m _"], b: Float[Tensor, "n _ p"]) -> bool:
    """Say whether to multiply agent by agent with oneDNN."""
    fit = a.shape[2] == b.shape[1]  # else MKL's error says what does not
    large = a.shape[1] * a.shape[2] * b.shape[2] >= LARGE
    alike = a.dtype == b.dtype == torch.float32
    return fit and large and alike and one_dnn_is_faster() and kernels.switched_on()


def _one_by_one(a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor | None = None) -> Tensor:
    out = a.new_empty(a.shape[0], a.shape[1], b.shape[2]) if out is None else out
    multiply = torch.ops.mkldnn._linear_pointwise
    biases = [None] * len(a) if bias is None else bias.unbind()
    for place, rows, columns, added in zip(out.unbind(), a.unbind(), b.mT.unbind(), biases, strict=True):
        place.copy_(multiply(rows.contiguous(), columns, added, "none", [], ""))
    return out


@functools.cache
def one_dnn_is_faster() -> bool:
    """Say whether this processor has AVX-512 and is one of AMD, and torch has oneDNN's product."""
    wide = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    if not (wide and torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    return "AuthenticAMD" in _processor() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _processor() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
