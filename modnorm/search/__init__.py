"""Ranking, nested prefixes, voting and the scoring of one candidate."""
