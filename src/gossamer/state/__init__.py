"""What an agent keeps, in either engine: its past, its local optimiser's memory, its checkpoints."""
