"""Groups of the internal graph → Choreo functions."""
