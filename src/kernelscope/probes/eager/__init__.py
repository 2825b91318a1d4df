"""What runs outside of compiled code: operators, modules, optimizer steps, profilers."""
