"""What commands on finished runs and manifests refuse before a model is loaded."""

import json
from dataclasses import replace

import pytest

from modnorm.analysis.export import write_run
from modnorm.errors import InvalidInputError
from modnorm.spec import parse_spec
from tests.scripted_services import refuse


@pytest.fixture
def run_of(spec, make_run, tmp_path):
    """Make the directory of a finished run of another method."""

    def make(**sections):
        content = spec.model_dump(mode="json", exclude={"method", "population"})
        named = parse_spec({**content, **sections}).model_dump(mode="json")
        write_run(tmp_path / "run", replace(make_run(), spec=named))
        (tmp_path / "run" / "spec.json").write_text(json.dumps(named))
        return tmp_path / "run"

    return make


@pytest.fixture
def trained(run_of):
    """The directory of a finished run that trains one model."""
    return run_of(method="es")


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


def test_a_trained_model_has_no_rank(refusal, trained, tmp_path):
    err = refusal("export", trained, "--rank", 1, "--out", tmp_path / "out")
    assert err.startswith("error: rank: ")
    assert not (tmp_path / "out").exists()


def test_of_a_search_a_rank_is_asked_for(refusal, run_of, tmp_path):
    search = run_of(method={"name": "randopt", "sigma": 0.01}, population={"size": 2})
    assert "--rank 1" in refusal("export", search, "--out", tmp_path / "out")


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
        refuse(context, InvalidInputError(refused, field="questions", remedy="mend it"))

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
