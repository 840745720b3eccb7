"""Service that computes profiles and radius artifacts."""
