"""run.db: its tables, the rows in them, writing and reading it."""
