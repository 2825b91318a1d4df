"""Launches of Inductor's Python wrappers."""
