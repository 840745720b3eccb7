import json
import sys

import pytest
import yaml

from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.tracking.registry import TRACKERS, load_tracker


@pytest.fixture
def absent(monkeypatch):
    """Return a function that hides an installed library."""

    def absent(name):
        for module in [one for one in sys.modules if one.split(".")[0] == name]:
            monkeypatch.delitem(sys.modules, module)
        places = [one for one in sys.path if "site-packages" not in one]
        monkeypatch.setattr(sys, "path", places)

    return absent


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_extra_is_refused_before_anything_runs(
    modnorm, absent, spec, monkeypatch, tmp_path, name
):
    (tmp_path / name).mkdir()  # as wandb itself makes one
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump(spec.model_dump(mode="json")))
    from modnorm.client import rundir  # noqa: F401, PLC0415 - imported before its folder is hidden

    absent(name)
    code, _, err = modnorm("run", file, "--track", name, "--out", tmp_path / "out", "--json")
    fault = json.loads(err)
    assert code == 2
    assert (fault["field"], fault["remedy"]) == ("track", f"pip install 'modnorm[{name}]'")
    assert not (tmp_path / "out").exists()


def test_an_unknown_tracker_is_refused_with_the_nearest():
    with pytest.raises(InvalidInputError, match=r"did you mean mlflow\?"):
        load_tracker("mlfow")


def test_wandb_without_credentials_is_refused(monkeypatch, tmp_path, fresh_wandb):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(PreconditionError, match="no credentials"):
        load_tracker("wandb")


def test_submit_tracks_only_what_it_follows(modnorm, spec, tmp_path):
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump(spec.model_dump(mode="json")))
    code, _, err = modnorm("submit", file, "--track", "mlflow", "--server", "127.0.0.1:1")
    assert code == 2
    assert "add --wait" in err
