"""The microservices; each meets the others only through `proto/`."""
