"""Modes of an eager run: notes, small errors, float64, and float64 as the compiler decomposes operators."""
