"""Turns seeds into descriptors."""
