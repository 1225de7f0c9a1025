"""What a user calls: simulate, compare and tune, in one process or with one process per agent."""
