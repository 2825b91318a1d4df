"""What a run looks like: in a terminal, and as JSON. Shows, and computes nothing."""
