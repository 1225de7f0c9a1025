"""The real thing: one agent a process, over shared memory and sockets."""
