"""What makes it safe to open and to send a run: where it was made, its files, what they tell."""
