import pytest

from modnorm.errors import InvalidInputError
from modnorm.services.common.settings import AggregatorSettings, EvaluatorSettings, add_password
from tests.faults import error_at


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "password"
    path.write_text("p@ss/:word\n")
    return path


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h:6379/0", "redis://:p%40ss%2F%3Aword@h:6379/0"),
        ("amqp://u@h:5672//", "amqp://u:p%40ss%2F%3Aword@h:5672//"),
        ("postgresql://u@h/d?x=y", "postgresql://u:p%40ss%2F%3Aword@h/d?x=y"),
    ],
)
def test_the_password_is_quoted_into_the_url(file, url, expected):
    assert add_password(url, file, field="f") == expected


def test_settings_read_passwords_from_files(file, monkeypatch):
    monkeypatch.setenv("MODNORM_BROKER_PASSWORD_FILE", str(file))
    monkeypatch.setenv("MODNORM_DATABASE_PASSWORD_FILE", str(file))
    monkeypatch.setenv("MODNORM_DATABASE_URL", "postgresql://u@h/d")
    settings = AggregatorSettings()
    assert settings.database_url == "postgresql://u:p%40ss%2F%3Aword@h/d"
    assert settings.broker_url == "redis://:p%40ss%2F%3Aword@127.0.0.1:6379/0"
    assert EvaluatorSettings().broker_url == settings.broker_url


def test_a_password_in_the_url_as_well_is_refused(file):
    with error_at("broker_password_file", "both contain a password"):
        EvaluatorSettings(broker_url="redis://:p@h/0", broker_password_file=file)


def test_an_absent_and_an_empty_file_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="absent cannot be read: No such file"):
        add_password("redis://h/0", tmp_path / "absent", field="f")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InvalidInputError, match="is empty"):
        add_password("redis://h/0", tmp_path / "empty", field="f")
