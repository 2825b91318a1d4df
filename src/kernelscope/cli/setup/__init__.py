"""Commands about this machine and this shell."""
