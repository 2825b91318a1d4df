"""From values without a counterpart to the first call that made something wrong of what was right."""
