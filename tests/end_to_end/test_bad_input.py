"""Every kind of bad input: named by its field, exit code 2 or INVALID_ARGUMENT, nothing stored."""

import json
import shutil

import grpc
import pytest
import yaml
from google.protobuf import json_format

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.cli import main
from modnorm.client.client import Client
from modnorm.services.embedded import start
from modnorm.spec import MAX_POPULATION
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.v1.experiment_pb2_grpc import ExperimentServiceStub
from modnorm.wire.channel import open_channel
from modnorm.wire.status import from_rpc_error
from verification.labs.waiting import HANG_SECONDS


@pytest.fixture(scope="module")
def lab(tmp_path_factory, cache_dir):
    """A lab whose evaluator has nothing to do."""
    with start(tmp_path_factory.mktemp("lab"), cache=cache_dir) as running:
        yield running


@pytest.fixture
def channel(lab):
    with open_channel(lab.target, lab.credentials, ()) as opened:
        yield opened


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files that are wrong in one way each."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "empty.jsonl").write_text("")
    good = json.dumps({"question": "1 and 2?", "answer": "3"})
    (folder / "malformed.jsonl").write_text(f"{good}\n{{oops\n")
    (folder / "schema.jsonl").write_text(f'{good}\n{{"question": "many"}}\n')
    tiny = resolve_checkpoint("tiny-thicket").directory
    quantised = folder / "quantised"
    shutil.copytree(tiny, quantised)
    config = json.loads((tiny / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (quantised / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def foreign_profile(files, finished, cache_dir):
    """A profile of another model."""
    calibrated = next((cache_dir / "profiles").glob("*.json"))  # by the finished run
    profile = json.loads(calibrated.read_text())
    profile["model_digest"] = "0" * 64
    path = files / "profile.json"
    path.write_text(json.dumps(profile))
    return path


BAD = [
    ("task__name", "chess", "task.name"),
    ("model__name", "no-such-model", "model.name"),
    ("method__name", "no-such-method", "method.name"),
    ("population__ensemble_sizes", [1, 4], "population.ensemble_sizes"),
    ("population__prefixes", [3], "population.prefixes"),
    ("population__size", 0, "population.size"),
    ("population__size", MAX_POPULATION + 1, "population.size"),
    ("population__noise", "no-such-noise", "population.noise"),
    ("method__radius", -0.1, "method.radius"),
    ("method__radius", 0, "method.radius"),
    ("method__radius", float("nan"), "method.radius"),
    ("task__max_tokens", 2040, "task.selection"),
    ("task__selection", {"source": "{files}/empty.jsonl"}, "task.selection"),
    ("task__heldout", {"source": "{files}/malformed.jsonl"}, "task.heldout"),
    ("task__heldout", {"source": "{files}/schema.jsonl"}, "task.heldout"),
    ("task__heldout", {"source": "{files}/absent.jsonl"}, "task.heldout.source"),
    ("task__selection", {"source": "bundled:absent"}, "task.selection.source"),
    ("model__name", "{files}/quantised", "model.config.quantization_config"),
    ("method__profile", "{files}/profile.json", "method.profile"),
    ("calibration__examples", 1, "calibration.examples"),
]


@pytest.fixture
def bad_spec(write_spec, files, foreign_profile):
    """Write a spec with one field changed; `{files}` stands for the folder of wrong files."""

    def write(path, value):
        text = json.dumps(value).replace("{files}", str(files))
        return write_spec("bad", **{path: json.loads(text)})

    return write


@pytest.fixture
def stored(lab):
    """Return how many experiments the lab holds."""

    def count():
        with Client(lab.target, credentials=lab.credentials) as client:
            return len(list(client.list()))

    return count


@pytest.mark.parametrize(("path", "value", "field"), BAD[:1])
def test_the_command_line_names_the_field(
    path, value, field, bad_spec, lab, stored, monkeypatch, capsys
):
    command = ["modnorm", "submit", str(bad_spec(path, value)), "--server", lab.target, "--json"]
    monkeypatch.setenv("MODNORM_TOKEN", lab.credentials.token.get_secret_value())
    monkeypatch.setattr("sys.argv", command)
    before = stored()
    with pytest.raises(SystemExit) as ended:
        main()
    error = json.loads(capsys.readouterr().err)
    assert ended.value.code == 2
    assert error["field"] == field
    assert stored() == before


@pytest.mark.parametrize(("path", "value", "field"), BAD)
def test_the_service_names_the_field(path, value, field, bad_spec, channel, stored):
    text = json.dumps(yaml.safe_load(bad_spec(path, value).read_text()))
    request = experiments.CreateExperimentRequest(
        request_id="bad",
        spec=json_format.Parse(text.replace("NaN", '"NaN"'), experiments.ExperimentSpec()),
    )
    before = stored()
    with pytest.raises(grpc.RpcError) as raised:
        ExperimentServiceStub(channel).CreateExperiment(request, timeout=HANG_SECONDS)
    error = from_rpc_error(raised.value)
    assert isinstance(raised.value, grpc.Call)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.field == field
    assert stored() == before


def test_a_run_that_the_lab_alone_can_refuse_leaves_nothing(modnorm, bad_spec, tmp_path):
    out = tmp_path / "out"
    spec = bad_spec("task__max_tokens", 2040)  # more than the model has positions
    ended = modnorm("run", spec, "--out", out, "--json", check=False)
    assert ended.returncode == 2
    assert json.loads(ended.stderr.splitlines()[-1])["field"] == "task.selection"
    assert not out.exists()


def test_of_several_runs_one_that_is_refused_stops_no_other(
    modnorm, bad_spec, write_spec, tmp_path
):
    small = {"method": {"name": "base"}, "population": {"size": 1, "ensemble_sizes": [1]}}
    files = [bad_spec("task__name", "chess"), write_spec("after", **small)]
    ended = modnorm("run", *files, "--out", tmp_path, "--json", check=False)
    assert ended.returncode == 1
    first, *_, last = ended.stderr.splitlines()
    assert first.startswith(f"failed: {files[0].stem}: {files[0]}:")
    assert ": task.name: " in first
    assert json.loads(last)["message"] == f"1 of 2 experiments failed: {files[0].stem}"
    (document,) = json.loads(ended.stdout)
    assert document["spec"]["name"] == "after"
