"""How the ranks hold a value, and how far it is from the reference's: elements, statistics and hashes."""
