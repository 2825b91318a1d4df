"""Ranks of one run held against each other: who differs first, and where."""
