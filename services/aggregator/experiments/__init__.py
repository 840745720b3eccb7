"""Experiments, from their admission to their end."""
