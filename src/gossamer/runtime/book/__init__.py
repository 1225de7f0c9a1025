"""How agents find and trust each other: the address book, addresses, keys, and the clusters found on the way."""
