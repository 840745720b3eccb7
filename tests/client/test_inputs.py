import json
import shutil

import pytest

from modnorm.calibration.profile import METHOD, Profile
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.client.resumption import check_inputs
from modnorm.errors import ConflictError
from modnorm.spec import parse_spec
from modnorm.tasks.columns import prompts_digest, rows_digest
from modnorm.tasks.countdown import Countdown
from modnorm.tasks.protocol import Message
from modnorm.tasks.row_loading import load_data
from modnorm.v1.experiment_pb2 import Provenance
from tests.faults import error_at


def write_rows(path, *targets):
    rows = [json.dumps({"numbers": [1, 2, 3], "target": target}) for target in targets]
    path.write_text("\n".join(rows))


def write_profile(path, sensitivity):
    content = {
        "schema_version": 2,
        "method": METHOD,
        "model_name": "small",
        "num_layers": 1,
        "application": {},
        "layers": {"0": {"mlp_module": {"value": sensitivity}}},
    }
    path.write_text(json.dumps(content))


@pytest.fixture
def local(tmp_path):
    """A spec whose every input is a file under `tmp_path`."""
    write_rows(tmp_path / "selection.jsonl", 6, 5)
    write_rows(tmp_path / "heldout.jsonl", 4)
    write_profile(tmp_path / "profile.json", 2.5)
    shutil.copytree(resolve_checkpoint("tiny-thicket").directory, tmp_path / "model")
    return parse_spec(
        {
            "model": str(tmp_path / "model"),
            "task": {
                "name": "countdown",
                "selection": str(tmp_path / "selection.jsonl"),
                "heldout": str(tmp_path / "heldout.jsonl"),
            },
            "method": {
                "name": "modular_norm",
                "radius": 0.3,
                "profile": str(tmp_path / "profile.json"),
            },
            "population": {"size": 2},
        }
    )


@pytest.fixture
def provenance(local, tmp_path):
    """What an experiment of the files as they are is made from."""

    def digest(rows, field):
        return rows_digest(load_data(Countdown(), rows, field=field).rows)

    return Provenance(
        model_digest=resolve_checkpoint(local.model.name).digest,
        profile_digest=Profile.load(tmp_path / "profile.json").digest,
        selection_digest=digest(local.task.selection, "task.selection"),
        heldout_digest=digest(local.task.heldout, "task.heldout"),
        prompts_digest=prompts_digest(
            map(
                Countdown().messages,
                load_data(Countdown(), local.task.heldout, field="heldout").rows,
            )
        ),
        scorer=Countdown().scorer,
    )


def edit_model(path):
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 0.5}))


@pytest.mark.parametrize(
    ("name", "edit", "field"),
    [
        ("selection.jsonl", lambda path: write_rows(path, 6, 1), "task.selection"),
        ("heldout.jsonl", lambda path: write_rows(path, 1), "task.heldout"),
        ("model", edit_model, "model"),
        ("profile.json", lambda path: write_profile(path, 2.75), "method.profile"),
    ],
)
def test_an_edited_input_is_refused_by_its_field(name, edit, field, local, provenance, tmp_path):
    edit(tmp_path / name)
    with error_at(field, "--out", kind=ConflictError):
        check_inputs(local, provenance)


def test_another_scorer_is_refused(local, provenance):
    provenance.scorer = "countdown-v0"
    with error_at("task", kind=ConflictError):
        check_inputs(local, provenance)


def test_another_prompt_of_the_task_is_refused(local, provenance, monkeypatch):
    monkeypatch.setattr(Countdown, "messages", lambda *_: (Message("user", "Guess."),))
    with error_at("task", kind=ConflictError):
        check_inputs(local, provenance)


def test_what_lies_on_the_hub_is_not_asked_for(local, provenance):
    data = local.model_dump(mode="json")
    hub = {"source": "somebody/puzzles", "split": "test"}
    spec = parse_spec(
        {
            **data,
            "model": {"name": "somebody/small"},
            "task": {**data["task"], "selection": hub, "heldout": hub},
            "method": {**data["method"], "profile": "0" * 64},
        }
    )
    check_inputs(spec, provenance)
