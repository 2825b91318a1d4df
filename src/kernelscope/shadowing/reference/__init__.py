"""What a launch should compute: its part of the FX graph, evaluated."""
