"""Waiting for what other threads and processes do."""

import time


def until(condition, seconds=60.0):
    """Wait until something is so, and return it; fail when that takes longer than any slow machine explains."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.002)
    return found
