"""The services; they communicate only through `proto/`."""
