"""What a run is: events, calls, labels, findings. Needs no torch."""
