"""The Triton engines for CUDA tensors."""
