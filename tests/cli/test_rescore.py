import json

import pytest

from modnorm.errors import UnavailableError
from modnorm.spec import TaskSpec, parse_spec
from modnorm.tasks import Judgement
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.connection import Credentials
from modnorm.wire.conversions import spec_to_proto
from modnorm.wire.remote_sandbox import judging_task
from tests.faults import error_at
from tests.scripted_services import scored_candidate, write_stored

RIGHT = "<answer>def f(): return 1</answer>"
FENCED = "<answer>```python\ndef f(): return 1\n```</answer>"


@pytest.fixture
def mbpp_lab(serve_directory, tmp_path, monkeypatch):
    """Serve an experiment of one candidate that fences its program, as the default allows."""
    spec = parse_spec(
        {
            "model": "tiny-thicket",
            "task": {"name": "mbpp", "selection": "s.jsonl", "heldout": "h.jsonl"},
            "method": {"name": "randopt", "sigma": 0.005},
            "population": {"size": 1},
        }
    )
    experiment = experiments.Experiment(
        id="e1",
        spec=spec_to_proto(spec),
        state=experiments.EXPERIMENT_STATE_SUCCEEDED,
        provenance=experiments.Provenance(scorer="mbpp-v1"),
        base=experiments.BaseResult(selection_reward=1.0, heldout_metric=1.0),
        ensembles=[
            experiments.EnsembleResult(
                population=1, ensemble_size=1, experts=[0], metric=1.0, correct=2, rows=2
            )
        ],
    )
    row = {"text": "t", "test_list": ["assert f() == 1"], "test_setup_code": ""}
    right = Judgement(1.0, "def f():\n    return 1", correct=True)
    splits = ("selection", "heldout")
    answers = {}
    for split in splits:
        answers[-1, split] = [(RIGHT, right), (RIGHT, right)]
        answers[0, split] = [(RIGHT, right), (FENCED, right)]
    rows = {split: [row, row] for split in splits}
    monkeypatch.setenv("MODNORM_CACHE_DIR", str(tmp_path / "cache"))
    found = [scored_candidate(0, 1.0, 1.0)]
    return serve_directory(
        experiment, write_stored(tmp_path / "mbpp", experiment, found, rows, answers)
    )


def test_the_file_and_json_are_one_document(modnorm_json, gsm8k_lab, tmp_path):
    out = tmp_path / "new" / "file.json"
    command = ("rescore", "e1", "--server", gsm8k_lab, "--scorer", "reference", "--out", out)
    document = modnorm_json(*command)
    assert document["ensembles"][0]["metric"] == {"old": 1.0, "new": 0.5}
    first = out.read_bytes()
    assert json.loads(first) == document
    assert modnorm_json(*command) == document
    assert out.read_bytes() == first
    assert list(out.parent.iterdir()) == [out]


def test_an_unknown_scorer_is_refused_with_the_choices(refusal, gsm8k_lab):
    err = refusal("rescore", "e1", "--server", gsm8k_lab, "--scorer", "strict")
    assert err.startswith("error: task.scorer: ")
    assert "-v1" in err
    assert "-reference-v1" in err


def test_programs_run_in_a_sandbox_of_this_process(modnorm_json, mbpp_lab):
    same = modnorm_json("rescore", "e1", "--server", mbpp_lab)
    assert same["selection"] == same["heldout"] == {"total": 4, "changed": 0}
    published = modnorm_json("rescore", "e1", "--server", mbpp_lab, "--scorer", "reference")
    assert published["base"]["heldout_metric"] == {"old": 1.0, "new": 1.0}
    assert published["ensembles"][0]["metric"] == {"old": 1.0, "new": 0.5}


def test_a_sandbox_service_gets_the_token_of_the_environment(modnorm, mbpp_lab, monkeypatch):
    sent = []

    def connect(_target, *, credentials=None):
        sent.append(credentials and credentials.token.get_secret_value())
        raise UnavailableError("it is away")

    monkeypatch.setattr("modnorm.wire.remote_sandbox.RemoteSandbox", connect)
    monkeypatch.setenv("MODNORM_TOKEN", "secret")
    command = ("rescore", "e1", "--server", mbpp_lab, "--sandbox", "127.0.0.1:9")
    assert modnorm(*command)[0] == 1
    assert sent == ["secret"]


def test_a_sandbox_service_gets_no_token_in_plain_text_from_a_user_with_a_certificate(tmp_path):
    shown = Credentials(token="secret", tls_cert=tmp_path / "cert", tls_key=tmp_path / "key")
    named = TaskSpec(name="mbpp", selection="s.jsonl", heldout="h.jsonl")
    with error_at("MODNORM_TLS_CA"), judging_task(named, "127.0.0.1:9", shown):
        raise AssertionError("it was called")
