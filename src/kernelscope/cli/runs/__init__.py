"""Commands that read a run."""
