"""Random numbers of ranks."""
