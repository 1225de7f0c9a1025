"""The Triton kernels against the same layers in torch's own operations: interpreted on a CPU, compiled on a GPU."""

import os
import subprocess
import sys

import pytest
import torch

from pages import SUPPORT

GROUPS = [("units", 15), ("dense blocks", 3), ("models", 4)]


def check(group: str, count: int, device: str, **environment: str) -> None:
    # Triton decides at import whether it interprets, so this is a program of its own.
    script = SUPPORT / "kernel_cases.py"
    command = [sys.executable, str(script), group, device]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" ok") == count


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("group", "count"), GROUPS)
def test_kernels_agree_with_the_definition(group, count):
    check(group, count, "cpu", TRITON_INTERPRET="1")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("group", "count"), GROUPS)
def test_compiled_kernels_agree_with_the_definition(group, count):
    check(group, count, "cuda")
