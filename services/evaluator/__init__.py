"""The evaluator: workers that lease jobs, score candidates and report the results."""
