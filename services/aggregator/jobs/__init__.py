"""Jobs from claim to report: claims, leases, heartbeats, reports, failures."""
