"""Datasets of right answers, which train one student on an ensemble's answers."""
