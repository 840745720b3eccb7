"""Everything that clients and services share to speak over gRPC."""
