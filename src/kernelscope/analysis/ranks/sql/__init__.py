"""The same comparison as SQL over the tables that `export --parquet --ranks` writes, for runs of any size."""
