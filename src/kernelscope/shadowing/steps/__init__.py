"""Every step of the compiler, compared with the one before."""
