"""One seed per run, split by purpose and position.

Every draw comes from a generator that is a function of (seed, purpose, indices), not of the number of earlier draws.
So a resumed run needs no generator state, and both engines draw the same numbers for the same agent and step.
"""

import contextlib
import zlib
from collections.abc import Iterator

import numpy as np
import torch

from gossamer.errors import UserError


def generator(seed: int, purpose: str, *indices: int) -> torch.Generator:
    """Return the CPU generator for this purpose ('batches', 'delay', …) at this position (step, agent, …)."""
    if seed < 0:
        raise UserError(f"seed must be 0 or more, got {seed}")
    # The number of indices keeps (7,) apart from (7, 0): trailing zeros alone do not change a seed.
    entropy = [seed, zlib.crc32(purpose.encode()), len(indices), *indices]
    state = np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) & (2**63 - 1))


@contextlib.contextmanager
def drawing_from(device: torch.device, seed: int, purpose: str, *indices: int) -> Iterator[None]:
    """Within the context, modules on this device draw from the seed of the run.

    Seeds this one generator directly: torch.manual_seed also queues a call with a traceback for every unused device.
    """
    borrowed = _global_generator(device)
    before = borrowed.get_state()
    borrowed.manual_seed(generator(seed, purpose, *indices).initial_seed())
    try:
        yield
    finally:
        borrowed.set_state(before)


def _global_generator(device: torch.device) -> torch.Generator:
    """Return the generator that modules draw from on this device."""
    if device.type != "cuda":
        return torch.default_generator
    torch.cuda.init()
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]
