"""torch's own operator and module databases as programs for `shadow`: `python -m tests.sweep --help`."""
