"""Bad input through the front door; tests/services/aggregator/api has every kind of it."""

import json

import pytest

from modnorm.cli import main
from modnorm.client.client import Client
from modnorm.services.embedded import start


@pytest.fixture(scope="module")
def lab(tmp_path_factory, cache_dir):
    """A lab whose evaluator has nothing to do."""
    with start(tmp_path_factory.mktemp("lab"), cache=cache_dir) as running:
        yield running


@pytest.fixture(scope="module")
def bad_spec(write_spec):
    """A spec of a task that does not exist."""
    return write_spec("bad", task__name="chess")


@pytest.fixture
def stored(lab):
    """Return how many experiments the lab holds."""

    def count():
        with Client(lab.target, credentials=lab.credentials) as client:
            return len(list(client.list()))

    return count


def test_the_command_line_names_the_field(bad_spec, lab, stored, monkeypatch, capsys):
    command = ["modnorm", "submit", str(bad_spec), "--server", lab.target, "--json"]
    monkeypatch.setenv("MODNORM_TOKEN", lab.credentials.token.get_secret_value())
    monkeypatch.setattr("sys.argv", command)
    before = stored()
    with pytest.raises(SystemExit) as ended:
        main()
    error = json.loads(capsys.readouterr().err)
    assert ended.value.code == 2
    assert error["field"] == "task.name"
    assert stored() == before


def test_a_run_that_the_lab_alone_can_refuse_leaves_nothing(modnorm, write_spec, tmp_path):
    out = tmp_path / "out"
    spec = write_spec("long", task__max_tokens=2040)  # more than the model has positions
    ended = modnorm("run", spec, "--out", out, "--json", check=False)
    assert ended.returncode == 2
    assert json.loads(ended.stderr.splitlines()[-1])["field"] == "task.selection"
    assert not out.exists()
