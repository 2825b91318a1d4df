"""What a page shows, as plain dictionaries."""
