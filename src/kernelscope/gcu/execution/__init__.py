"""Loading a Choreo program, and running a compiled graph."""
