"""Names that a function makes known, and what it returns."""
