"""Settings of the gcu backend, under the names of Conductor's guide."""
