"""What observes the producers of calls: probes emit, and never steer."""
