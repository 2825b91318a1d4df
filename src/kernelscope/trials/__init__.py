"""One re-execution of a program in a search: how it is run, checked and recorded."""
