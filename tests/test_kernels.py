"""The Triton kernels, interpreted on the CPU, against the unit written with torch's own operations in float64."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HAS_TRITON = importlib.util.find_spec("triton") is not None
pytestmark = pytest.mark.skipif(not HAS_TRITON, reason="Triton is not built for this platform")


def test_kernels_agree_with_the_definition():
    # Triton decides at import whether it interprets, so this is a program of its own.
    script = Path(__file__).with_name("kernel_cases.py")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" ok") == 11
