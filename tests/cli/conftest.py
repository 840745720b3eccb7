import json
import sys

import pytest

from modnorm.cli import main
from tests.analysis.conftest import make_run

__all__ = ["make_run", "modnorm", "modnorm_json"]


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
def modnorm_json(modnorm):
    """Run a command with --json that must succeed; returns the document on stdout."""

    def call(*arguments):
        code, out, err = modnorm(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    return call
