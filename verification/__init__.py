"""Verification of the system: chaos, fuzz, published references and lab processes."""
