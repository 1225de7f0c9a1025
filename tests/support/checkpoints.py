"""What the tests of checkpoints share: small states, saved, spoiled and compared bit for bit."""

import warnings

import torch

from gossamer.state.checkpoint import Checkpoints


def state(number):
    return {"part.x": torch.full((3, 5), float(number)), "t": torch.tensor(number), "flags": torch.tensor([True])}


def same(first, second):
    return first.keys() == second.keys() and all(_bits(first[name]) == _bits(second[name]) for name in first)


def _bits(value):
    return value.dtype, value.shape, bytes(value.contiguous().view(-1).view(torch.uint8).tolist())


def loaded(folder):
    """The number of the state that a new process would go on from, and whether it was warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = Checkpoints(folder).load()
    assert same(found, state(int(found["t"])))
    return int(found["t"]), len(caught)


def spoil(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def saved(folder, *numbers):
    checkpoints = Checkpoints(folder)
    for number in numbers:
        checkpoints.save(state(number))
    return checkpoints
