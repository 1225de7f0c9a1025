"""Settings and fixtures shared by all tests."""

import importlib.util
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import settings

import checking  # noqa: F401  before anything of gossamer: it says how annotations are checked
from command import Command
from reports import make_runs

# The first call into torch is slow; a deadline on single examples would only measure that.
settings.register_profile("gossamer", deadline=None)
settings.load_profile("gossamer")

# Skip tests that need a GPU or Triton.
collect_ignore = [] if torch.cuda.is_available() else ["nn/test_stack_cuda.py"]
collect_ignore += [] if importlib.util.find_spec("triton") else ["nn/test_kernels.py"]

# Skip tests of the official files of CIFAR where $GOSSAMER_DATA does not have them.
data = Path(os.environ.get("GOSSAMER_DATA") or "nowhere")
collect_ignore += [] if any(data.glob("cifar-10*-*py*")) else ["data/test_data_official.py"]

# Two test workers share two cores, with every process that a test starts.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items):
    """Put the long tests, which are those with a limit of their own, first: no worker ends with one by itself."""
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The present folder, empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(folder, capsys):
    return Command(capsys)


@pytest.fixture
def ctrl_c():
    """Let SIGINT interrupt this process, as it does at a terminal: jobs in the background start out ignoring it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def runs_to_report(tmp_path_factory):
    """Runs for whoever reads run folders; to be copied, not changed."""
    return make_runs(tmp_path_factory.mktemp("report") / "compared")


@pytest.fixture
def compared(runs_to_report, folder):
    """A copy of them in the present folder, to be damaged."""
    return shutil.copytree(runs_to_report, folder / "compared")
