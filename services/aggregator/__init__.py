"""Keeps experiments, hands out jobs, ranks, votes."""
