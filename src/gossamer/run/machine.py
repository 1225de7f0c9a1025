"""The machine of a run: its device, its arithmetic, and how it keeps memory."""

import atexit
import contextlib
import ctypes
import gc
import os
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from gossamer.errors import UserError
from gossamer.run.settings import Settings

# By default glibc maps every large block anew and unmaps it when it is freed. Each new page costs a page fault. A step
# allocates a dozen [N, d] tensors: page faults took a third of its time on a CPU. Kept memory has holes, up to two
# fifths of what is in use, so it is not kept where memory is scarce.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # glibc's malloc.h: M_TRIM_THRESHOLD, ...
_REPORTS_LEAKS = "triton"  # its bindings report what is not collected at exit
_NEVER, _TRIM_DEFAULT, _MMAP_DEFAULT, _LARGE = 2**31 - 1, 128 * 1024, 65536, 2**20


@contextlib.contextmanager
def kept_memory(*, plenty: bool = True) -> Iterator[None]:
    """Within the context, keep freed memory for reuse, or return it at once where there is no plenty.

    At the end return it. Without glibc, do nothing.
    """
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_MMAP_MAX, 0 if plenty else _MMAP_DEFAULT)
    libc.mallopt(_TRIM_THRESHOLD, _NEVER if plenty else _TRIM_DEFAULT)
    if not plenty:
        libc.mallopt(_MMAP_THRESHOLD, _LARGE)
    try:
        yield
    finally:
        libc.mallopt(_MMAP_MAX, _MMAP_DEFAULT)
        libc.mallopt(_TRIM_THRESHOLD, _TRIM_DEFAULT)
        libc.malloc_trim(0)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Within the context, use one thread: on small matrices several mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def arithmetic(settings: Settings, *, plenty: bool = True) -> Iterator[None]:
    """Within the context, use the settings' threads and precision: the results of a run depend on them.

    `plenty` says whether there is memory to keep for reuse on a CPU.
    """
    cudnn = torch.backends.cudnn
    threads, matmul = torch.get_num_threads(), torch.get_float32_matmul_precision()
    benchmark, deterministic = cudnn.benchmark, torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(settings.threads)
    torch.set_float32_matmul_precision("highest")  # for the rules; models set their own (engine/execution)
    cudnn.benchmark = not settings.deterministic
    if settings.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS needs it in deterministic mode
        torch.use_deterministic_algorithms(True)
    try:
        with kept_memory(plenty=plenty) if settings.device == "cpu" else contextlib.nullcontext():
            yield
    except RuntimeError as error:
        if settings.deterministic and "deterministic" in str(error):
            raise UserError(f"{str(error).splitlines()[0].split(',')[0]}; leave --deterministic out") from None
        raise
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(matmul)
        cudnn.benchmark = benchmark
        if settings.deterministic:  # skipped otherwise: the call imports torch's compiler, which is slow
            torch.use_deterministic_algorithms(deterministic)


def check_device(device: str) -> str:
    """Return the device, or refuse one that is not available."""
    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, ImportError, NotImplementedError):
        raise UserError(f"device '{device}' is not available here; use cpu") from None
    return device


def device_name(device: str) -> str:
    """Return the model name of the device."""
    if torch.device(device).type == "cuda":
        return str(torch.cuda.get_device_name(device))
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, flags=re.MULTILINE)
    return f"CPU {found.group(1).strip() if found else platform.processor() or platform.machine()}"


def synchronise(device: str) -> None:
    """Wait until the device has finished all work."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def free_memory(device: str) -> None:
    """Free unused memory, reference cycles included."""
    gc.collect()
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()


def exit_soon() -> None:
    """At exit keep Python from searching all of torch for garbage, which takes most of a second."""
    atexit.register(lambda: None if _REPORTS_LEAKS in sys.modules else gc.freeze())


def is_alive(pid: int) -> bool:
    """Say whether this machine has a process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # it runs, as another user
        return True
    return pid > 0
