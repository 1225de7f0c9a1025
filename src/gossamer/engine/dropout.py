"""Chance inside of models: dropout draws from torch's global generator, which is lent to it and put back."""

import contextlib
from collections.abc import Iterator

import torch

from gossamer.seeding import generator


@contextlib.contextmanager
def drawing_from(device: torch.device, seed: int, purpose: str, step: int) -> Iterator[None]:
    """Let modules on this device draw from a run's seed for a while.

    The generator is seeded by itself, since torch.manual_seed also queues a call for every device that is not in use,
    with a traceback each time.
    """
    lent = _global_generator(device)
    before = lent.get_state()
    lent.manual_seed(generator(seed, purpose, step).initial_seed())
    try:
        yield
    finally:
        lent.set_state(before)


def _global_generator(device: torch.device) -> torch.Generator:
    """Return the generator that modules draw from on this device."""
    if device.type != "cuda":
        return torch.default_generator
    torch.cuda.init()
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]
