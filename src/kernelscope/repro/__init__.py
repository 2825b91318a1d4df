"""Standalone scripts from a recorded call or graph: writing them needs no torch, running them no more."""
