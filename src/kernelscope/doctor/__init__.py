"""What works on this machine: the checks of `kernelscope doctor`."""
