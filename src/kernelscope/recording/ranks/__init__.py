"""What a recording adds so that ranks can be compared afterwards."""
