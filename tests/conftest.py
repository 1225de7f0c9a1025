"""Settings and fixtures shared by all tests."""

import pytest
import torch
from hypothesis import settings

from command import Command

# The first call into torch is slow; a deadline on single examples would only measure that.
settings.register_profile("gossamer", deadline=None)
settings.load_profile("gossamer")

# What needs a GPU, or Triton, which is not built for every platform, is no test where there is none.
collect_ignore = [] if torch.cuda.is_available() else ["test_stack_cuda.py"]
collect_ignore += [] if importlib.util.find_spec("triton") else ["test_kernels.py"]

# Two test workers share two cores.
torch.set_num_threads(1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The present folder, empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(folder, capsys):
    return Command(capsys)
