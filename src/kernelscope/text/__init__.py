"""How things are written as text: names, durations, hashes."""
