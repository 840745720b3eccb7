"""Gradient-free post-training of language models by modular-norm weight perturbation."""

__version__ = "0.1.0"
