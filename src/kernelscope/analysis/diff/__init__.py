"""The first divergence of two runs, and its verdict."""
