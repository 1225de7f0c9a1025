"""An agent's state in either engine: its past, its local optimiser, its checkpoints."""
