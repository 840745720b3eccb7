"""Ranking, early stop, voting and the scoring of one candidate."""
