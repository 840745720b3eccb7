"""The parts of every worker: queue, leases with heartbeats, calls to the aggregator, stop."""
