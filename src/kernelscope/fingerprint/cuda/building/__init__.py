"""Our Triton kernels, built once on a machine: by a process of their own, several at a time, ahead of use."""
