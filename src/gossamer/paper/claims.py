"""Who makes which run, where several programs share a folder: on several GPUs, or on machines with a common disk.

A claim is a lock of the operating system, so that it ends with the program that holds it, however that ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def claim(folder: Path, name: str) -> Iterator[bool]:
    """Say whether what has this name is ours until the block ends; nobody waits for another."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f"{name}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def forget(folder: Path, name: str) -> None:
    """Remove the file of a claim on something that is done: whoever waits for it finds it done."""
    (folder / f"{name}.lock").unlink(missing_ok=True)
