"""The wrong inputs of a new user: the exact output of each is a file in `golden`."""

from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from huggingface_hub import constants

from modnorm.client.settings import ClientSettings
from modnorm.errors import UnauthenticatedError
from modnorm.wire.tokens import TokenTable
from tests.scripted_services import refuse

GOLDEN = Path(__file__).parent / "golden"
SPEC = """\
name: first search
model: tiny-thicket
task:
  name: countdown
  selection: {source: "bundled:countdown-selection", limit: 8}
  heldout: {source: "bundled:countdown-heldout", limit: 8}
method:
  name: modular_norm
  radius: 0.64
population:
  size: 4
  prefixes: [2, 4]
  ensemble_sizes: [1, 2]
"""
ROWS = '"bundled:countdown-selection", limit: 8'
IN_THE_SPEC = {
    "typo_in_task": ("name: countdown", "name: coutdown"),
    "typo_in_method": ("modular_norm", "modular_nrom"),
    "typo_in_key": ("population:", "populaton:"),
    "typo_in_inner_key": ("ensemble_sizes:", "ensemble_size:"),
    "typo_in_model": ("tiny-thicket", "tiny-thiket"),
    "typo_in_rows": ("countdown-selection", "countdown-selecton"),
    "typo_in_scorer": ("name: countdown", "name: countdown\n  scorer: refrence"),
    "type_of_value": ("size: 4", "size: ten"),
    "tab": ("  size: 4", "\tsize: 4"),
    "bracket_left_open": ("[2, 4]", "[2, 4"),
    "key_twice": ("size: 4", "size: 4\n  size: 8"),
    "no_radius": ("  radius: 0.64\n", ""),
    "ensemble_of_nobody": ("[1, 2]", "[0]"),
    "ensemble_too_large": ("[1, 2]", "[1, 3]"),
    "ensemble_larger_than_n": (
        "  prefixes: [2, 4]\n  ensemble_sizes: [1, 2]",
        "  ensemble_sizes: [8]",
    ),
    "same_rows_twice": ('"bundled:countdown-heldout", limit: 8', ROWS),
    "nul_in_a_name": ("first search", '"first\\0search"'),
    "absent_model_offline": ("tiny-thicket", "Qwen/Qwen2.5-1.5B-Instruct"),
}
"""What `modnorm run spec.yaml` refuses: a text of the spec, and what stands there instead."""
ON_THE_LINE = {
    "unknown_command": ("rnu", "spec.yaml"),
    "unknown_option": ("run", "spec.yaml", "--quit"),
    "missing_file": ("run", "sepc.yaml"),
    "missing_file_unlike_others": ("run", "nothere.yaml"),
    "directory_of_a_run": ("run", "finished"),
    "radii_of_letters": ("tune", "spec.yaml", "--radii", "a,b"),
    "directory_without_a_run": ("show", "folder"),
    "no_lab": ("list",),
    "wrong_token": ("list", "--server", "SERVER"),
}
"""What else is refused."""
CODES = {"no_lab": 1}
"""Exit codes other than 2: a lab may be there later."""


class Elsewhere(ClientSettings):
    """Settings of a user who names no lab; nothing listens at the default address."""

    server: str = "127.0.0.1:1"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home without a lab, a network or cached models; its specs are in `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MODNORM_SERVER", raising=False)
    monkeypatch.setattr("modnorm.client.settings.ClientSettings", Elsewhere)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "folder").mkdir()
    run = tmp_path / "finished"
    run.mkdir()
    (run / "spec.json").touch()
    (tmp_path / "spec.yaml").write_text(SPEC)
    return tmp_path


@pytest.fixture
def lab(servicer, serve):
    """A lab that accepts no token; returns its address."""

    def check(request, context):
        metadata = dict(context.invocation_metadata())
        text = metadata["authorization"].removeprefix("Bearer ")
        with pytest.raises(UnauthenticatedError) as refused:
            TokenTable().check(text, datetime.now(UTC))
        refuse(context, refused.value)

    return serve(servicer(ListExperiments=check))


def golden(name):
    return (GOLDEN / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", IN_THE_SPEC)
def test_a_wrong_spec_is_refused_in_these_words(home, modnorm, name):
    old, new = IN_THE_SPEC[name]
    assert old in SPEC
    (home / "spec.yaml").write_text(SPEC.replace(old, new, 1))
    assert modnorm("run", "spec.yaml") == (2, "", golden(name))
    assert not (home / "runs").exists()


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("name", ON_THE_LINE)
def test_a_wrong_command_line_is_refused_in_these_words(home, modnorm, lab, name, monkeypatch):
    monkeypatch.setenv("MODNORM_TOKEN", "modnorm_me_wrong")
    line = [lab if word == "SERVER" else word for word in ON_THE_LINE[name]]
    told = golden(name).replace("lab SERVER", f"lab {lab}")
    assert modnorm(*line) == (CODES.get(name, 2), "", told)


def test_an_absent_model_leaves_nothing_while_the_hub_is_out_of_reach(home, modnorm, monkeypatch):
    def unreachable(url, **_):
        raise httpx.ConnectError("no network")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("modnorm.checkpoint.hub.get_hf_file_metadata", unreachable)
    (home / "spec.yaml").write_text(SPEC.replace("tiny-thicket", "some/absent", 1))
    code, out, err = modnorm("run", "spec.yaml")
    assert (code, out) == (1, "")
    assert err == (
        "error: model.name: cannot fetch some/absent from the Hugging Face Hub: no network "
        "(try again, or use a local directory)\n"
    )
    assert not (home / "runs").exists()
