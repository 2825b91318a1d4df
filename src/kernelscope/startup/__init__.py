"""Recording of a program that does not know of kernelscope."""
