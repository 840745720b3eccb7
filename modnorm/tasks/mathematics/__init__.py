"""Mathematical answers: finding them, reading them, telling equal ones."""
