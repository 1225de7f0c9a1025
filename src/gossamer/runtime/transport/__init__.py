"""How messages move between processes: the newest of each peer, and nobody waits."""
