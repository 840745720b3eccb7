"""Code shared by all services: settings, server bootstrap, queue."""
