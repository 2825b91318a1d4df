"""Which kernel's result differs from eager: each kernel is checked against its own part of the graph."""
