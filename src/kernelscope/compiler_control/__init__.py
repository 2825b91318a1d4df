"""What steers the compiler: switches and forced settings, lazy kernels, shared binaries."""
