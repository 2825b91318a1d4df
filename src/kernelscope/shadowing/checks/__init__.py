"""What can be wrong with a launch or a stage, checked one kind at a time."""
