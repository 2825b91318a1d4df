"""Triton kernels. Imported only where there is a GPU, or Triton's interpreter."""
