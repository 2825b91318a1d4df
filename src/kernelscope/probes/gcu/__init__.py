"""Launches and stages of the gcu backend."""
