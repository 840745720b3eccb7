"""Laboratories of real processes, for tests and verification."""
