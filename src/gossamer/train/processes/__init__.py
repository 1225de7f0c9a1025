"""`gossamer train --engine processes`: the simulator's tasks, with one process an agent."""
