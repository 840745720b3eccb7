"""Makes profile artifacts."""
