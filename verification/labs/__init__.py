"""Labs of real processes, for tests and verification."""
