"""What shadowing found, as text and as HTML."""
