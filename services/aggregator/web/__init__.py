"""The web page of the lab's experiments, read from the database."""
