"""The names under which Conductor's guide imports the tracer of the gcu backend."""
