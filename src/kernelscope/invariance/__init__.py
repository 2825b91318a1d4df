"""Whether the result for a row depends on the other rows of a batch, and which kernel causes it."""
