"""What clients and workers call."""
