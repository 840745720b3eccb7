"""The gRPC services of the aggregator."""
