"""Which call of one run is which call of another."""
