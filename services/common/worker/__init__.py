"""The parts of every worker: service, queue, leases with heartbeats, calls, failures, stop."""
