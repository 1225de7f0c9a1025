"""One seed a run, split by purpose and position.

Every draw comes from a generator that is a function of (seed, purpose, indices), never of how many draws
came before. So a resumed run needs no generator state, and two engines draw the same numbers for the same
agent and step.
"""

import zlib

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
