"""Launches inside CUDA graphs."""
