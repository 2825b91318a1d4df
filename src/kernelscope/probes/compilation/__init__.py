"""What the compiler does: graphs, passes, fusion, provenance, failures."""
