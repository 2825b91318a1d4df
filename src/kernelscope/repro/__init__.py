"""Standalone scripts from a recorded call or graph. Writing them needs no torch; running them needs nothing else."""
