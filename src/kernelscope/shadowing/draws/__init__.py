"""Random numbers: what compiled code drew, and whether it draws from the right distribution."""
