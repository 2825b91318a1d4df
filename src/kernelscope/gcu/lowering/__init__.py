"""ATen graph → internal graph of buffers and nodes, fused into groups."""
