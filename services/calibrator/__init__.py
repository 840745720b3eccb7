"""Service that computes profiles."""
