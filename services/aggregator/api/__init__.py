"""The gRPC services for clients and workers."""
