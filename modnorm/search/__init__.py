"""Ranking, voting and the scoring of one candidate."""
