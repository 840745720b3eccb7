"""Answers of a finished run's ensemble to new questions, and its portable manifest."""
