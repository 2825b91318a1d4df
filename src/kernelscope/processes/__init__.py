"""Child processes, signals, and limits of the machine. Needs no torch."""
