"""The CPU engine: C++ that the system's compiler builds at first use."""
