"""The service that runs untrusted programs, such as those that a model wrote."""
