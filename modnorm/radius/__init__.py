"""Choice of a radius, by a grid of experiments or by functional matching (paper, app. B)."""
