"""Service that inspects models, builds scale maps and draws populations."""
