"""Everyday models as clean programs: `python -m tests.models` runs all of them and prints a table."""
