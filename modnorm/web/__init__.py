"""The web page of runs: read-only, rendered on the server, without external assets."""
