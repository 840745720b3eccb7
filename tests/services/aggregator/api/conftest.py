import pytest


@pytest.fixture
def database_url(tmp_path) -> str:
    """SQLite: the stores below are tested on both databases."""
    return f"sqlite:///{tmp_path}/modnorm.db"
