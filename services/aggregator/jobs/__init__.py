"""Jobs: claims, leases, reports and their way to the broker."""
