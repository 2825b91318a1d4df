"""Two scripts, compared in a process each."""
