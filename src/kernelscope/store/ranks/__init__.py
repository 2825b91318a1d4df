"""A run that several ranks recorded: the folder that they share, and whose part is whose."""
