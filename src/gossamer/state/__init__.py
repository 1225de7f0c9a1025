"""The state of an agent in both engines: histories, local optimizer, checkpoints."""
