"""The C library's allocator, told to keep what a run frees: the next step will ask for it again.

By default glibc maps every large block anew and gives it back when freed, and each of its pages costs a fault at the
first touch. A step allocates a dozen tensors of [N, d], so that this took a third of its time on a CPU.
"""

import contextlib
import ctypes
import platform
from collections.abc import Iterator

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # glibc's malloc.h: M_TRIM_THRESHOLD, M_MMAP_MAX
_NEVER, _TRIM_DEFAULT, _MMAP_DEFAULT = 2**31 - 1, 128 * 1024, 65536


@contextlib.contextmanager
def kept_memory() -> Iterator[None]:
    """Keep freed memory for a while; afterwards give it back. Without glibc, do nothing."""
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_MMAP_MAX, 0)
    libc.mallopt(_TRIM_THRESHOLD, _NEVER)
    try:
        yield
    finally:
        libc.mallopt(_MMAP_MAX, _MMAP_DEFAULT)
        libc.mallopt(_TRIM_THRESHOLD, _TRIM_DEFAULT)
        libc.malloc_trim(0)
