"""Where runs are kept: run.db, saved tensors, the flight recorder. Reading needs no torch."""
