"""Pulls jobs, scores candidates, reports."""
