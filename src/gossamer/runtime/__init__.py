"""The runtime: one agent a process, linked by shared memory and sockets."""

from gossamer.runtime.agent import Agent, join

__all__ = ["Agent", "join"]
