"""What `predict`, `serve` and the manifest commands refuse before a model is loaded."""

import json
from dataclasses import replace

import pytest
from grpc_status import rpc_status

from modnorm.analysis.export import write_run
from modnorm.errors import InvalidInputError
from modnorm.spec import parse_spec
from modnorm.wire.status import to_status


@pytest.fixture
def trained(make_run, tmp_path):
    """The directory of a finished run that trains one model."""
    rows = {"source": "bundled:countdown-selection", "limit": 8}
    heldout = {"source": "bundled:countdown-heldout", "limit": 8}
    task = {"name": "countdown", "selection": rows, "heldout": heldout}
    named = {"model": "tiny-thicket", "task": task, "method": "es"}
    spec = parse_spec(named).model_dump(mode="json")
    write_run(tmp_path / "run", replace(make_run(), spec=spec))
    (tmp_path / "run" / "spec.json").write_text(json.dumps(spec))
    return tmp_path / "run"


def test_a_trained_model_has_no_ensemble(refusal, trained, tmp_path):
    questions, out = tmp_path / "questions.jsonl", tmp_path / "out"
    questions.write_text('{"numbers": [1, 2], "target": 3}\n')
    for words in (
        ("predict", trained, "--input", questions, "--out", out),
        ("export", trained, "--manifest", "--out", out),
        ("serve", trained),
    ):
        err = refusal(*words)
        assert "error: run: es trained one model, which has no ensemble" in err
        assert not out.exists()


def test_evaluators_of_a_lab_have_the_base_and_the_engine(refusal, tmp_path):
    asked = ("predict", "4be12f0c", "--server", "127.0.0.1:1", "--input", tmp_path / "questions")
    options = (("engine", "vllm"), ("model", "tiny-thicket"), ("revision", "abc"))
    for option, value in options:
        err = refusal(*asked, f"--{option}", value, "--out", tmp_path / "out")
        field = "engine" if option == "engine" else "model"
        assert err.startswith(f"error: {field}: the evaluators of the lab load the base")
        assert "add --local" in err
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("second", "refused", "words"),
    [
        ('{"target": "x"}', "row 1, column 'target': must be", "line 3, column 'target': must be"),
        ('{"target": 2}', "task own, row 1: KeyError: 'row 0'", "line 3: KeyError: 'row 0'"),
    ],
)
def test_a_lab_refuses_a_row_by_its_place_in_the_file(
    refusal, serve, servicer, tmp_path, second, refused, words
):
    def create(request, context):
        error = InvalidInputError(refused, field="questions", remedy="mend it")
        context.abort_with_status(rpc_status.to_status(to_status(error)))

    questions, out = tmp_path / "questions.jsonl", tmp_path / "out"
    questions.write_text(f'{{"target": 1}}\n\n{second}\n')
    lab = serve(servicer(CreateExperiment=create))
    err = refusal("predict", "e1", "--server", lab, "--input", questions, "--out", out)
    assert f"error: input: {refused.partition('row')[0]}{questions}, {words}" in err
    assert "mend it" in err
    assert not out.exists()


def test_an_address_that_others_reach_needs_keys(refusal, trained, tmp_path):
    err = refusal("serve", trained, "--host", "0.0.0.0")
    assert err.startswith("error: api-keys: ")
    absent = tmp_path / "absent"
    err = refusal("serve", trained, "--api-keys", absent)
    assert err == f"error: api-keys: cannot read {absent}: No such file or directory\n"


def test_what_is_no_manifest_is_not_rebuilt(refusal, tmp_path):
    (tmp_path / "file").write_text("{}")
    err = refusal("rebuild", tmp_path / "file", "--out", tmp_path / "out")
    assert err.startswith(f"error: manifest: {tmp_path / 'file'} is no manifest of an ensemble")
    (tmp_path / "file").write_text("model: tiny-thicket")
    err = refusal("rebuild", tmp_path / "file", "--out", tmp_path / "out")
    assert "is no manifest of an ensemble: Invalid JSON: " in err
    err = refusal("rebuild", tmp_path / "absent", "--out", tmp_path / "out")
    assert "is no manifest of an ensemble: No such file or directory (name " in err
    assert not (tmp_path / "out").exists()
