"""A run of one process against a run of several ranks: values are put together from shards, and compared."""
