"""Transports between processes: the newest message of each peer, without waiting."""
