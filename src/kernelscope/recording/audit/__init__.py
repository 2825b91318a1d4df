"""The audit: what ran, by the profiler, held against the calls that were recorded."""
