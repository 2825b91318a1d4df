"""C++ that the statements of planned wrappers call: fingerprints, and the look for NaN and infinities."""
