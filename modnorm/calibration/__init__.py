"""Sensitivity calibration: functional maps, operator norms, profiles (paper app. A.2)."""
