"""Stores experiments, leases jobs, ranks candidates and counts votes."""
