"""Programs of several ranks: collectives, process groups, and which rank this process is."""
