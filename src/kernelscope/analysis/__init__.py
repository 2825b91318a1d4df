"""Comparing runs: pure functions of runs, without torch."""
