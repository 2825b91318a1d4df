"""What ranks sent in a broadcast or an all-gather, held against what came out of it."""
