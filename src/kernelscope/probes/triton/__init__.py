"""Triton kernels: those that users launch, and what any of them does with its arguments."""
