"""Modular-norm geometry: roles, norms, masses, corrections, scales (paper sec. 3, app. A)."""
