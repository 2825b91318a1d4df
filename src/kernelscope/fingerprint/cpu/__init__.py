"""The C++ engines for CPU tensors."""
