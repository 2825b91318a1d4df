"""Rounding told from error: another program on the same values, call by call, with measured tolerances."""
