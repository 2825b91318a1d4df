"""What steers the compiler: switches, lazy kernels, shared binaries. Only searches use it."""
