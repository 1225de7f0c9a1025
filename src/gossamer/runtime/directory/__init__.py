"""How the agents of a run find each other: keys, signed entries and addresses."""
