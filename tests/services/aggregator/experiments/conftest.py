import logging

import pytest


@pytest.fixture
def own_logging():
    """Undo what a program configures: its handler writes to a stream that ends with the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
