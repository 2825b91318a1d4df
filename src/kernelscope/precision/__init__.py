"""Which dtype each kernel needs: its error against float64, its range, and promises verified by a run."""
