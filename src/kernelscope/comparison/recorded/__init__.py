"""Two runs that are on disk: their saved values, and the reference's operators run again."""
