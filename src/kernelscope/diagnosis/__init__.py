"""What is wrong with a script: the other commands, one after the other, until the cause is known."""
