"""Where the agents of a run find each other: entries of the address book, keys and addresses."""
