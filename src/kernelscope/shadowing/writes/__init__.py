"""Whether buffers change that no kernel declares to write to."""
