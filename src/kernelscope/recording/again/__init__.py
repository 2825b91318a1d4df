"""Calls that are run again where they happen, on the same inputs, to see whether they give the same."""
