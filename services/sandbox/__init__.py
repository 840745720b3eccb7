"""The service that runs untrusted programs: the only place where model-written code runs."""
