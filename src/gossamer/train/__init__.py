"""What a user calls: simulate, compare and tune, in one process or with one process an agent."""
