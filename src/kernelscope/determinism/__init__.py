"""Running something several times from the same state, and comparing the runs."""
