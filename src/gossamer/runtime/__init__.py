"""The real thing: one agent a process, over shared memory and sockets."""

from gossamer.runtime.agent import Agent, join

__all__ = ["Agent", "join"]
