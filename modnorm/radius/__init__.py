"""Choosing a radius: a grid of experiments, or matching isotropic noise (paper, app. B)."""
