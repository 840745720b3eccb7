import json
import sys

import pytest

from modnorm.cli import main
from tests.analysis.conftest import make_run

__all__ = ["make_run", "modnorm", "modnorm_json", "printed", "refusal", "spec_file"]


@pytest.fixture
def modnorm(monkeypatch, capsys):
    """Run the command line in this process; returns exit code, stdout, stderr."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["modnorm", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return call


@pytest.fixture
def printed(modnorm):
    """Run a command that must succeed; returns stdout."""

    def call(*arguments):
        code, out, err = modnorm(*arguments)
        assert code == 0, err
        return out

    return call


@pytest.fixture
def spec_file(printed, tmp_path):
    """The file of the spec that `modnorm init` writes."""
    printed("init", tmp_path / "spec.yaml")
    return tmp_path / "spec.yaml"


@pytest.fixture
def refusal(modnorm):
    """Run a command whose caller has to change something; returns stderr."""

    def call(*arguments):
        code, _, err = modnorm(*arguments)
        assert code == 2, err
        return err

    return call


@pytest.fixture
def modnorm_json(printed):
    """Run a command with --json that must succeed; returns the document on stdout."""
    return lambda *arguments: json.loads(printed(*arguments, "--json"))
