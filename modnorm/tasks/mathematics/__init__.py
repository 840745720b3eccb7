"""Mathematical answers: extraction, parsing and comparison."""
