"""Python that torch generates, read as text: wrappers with their kernels and calls, printed graphs."""
