"""Runs as the real libraries store them: MLflow in SQLite, Weights & Biases offline."""

import json
import struct
import sys

import pytest
import wandb
from wandb.proto import wandb_internal_pb2 as messages

from modnorm.client.client import Client
from modnorm.errors import InvalidInputError, PreconditionError, UnavailableError
from modnorm.tracking import TRACKERS, distillation_figures, log_run
from tests.analysis.distillations import make_document

# MLflow's own use of SQLAlchemy 2.1.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*loader strategy is deprecated:DeprecationWarning"
)

FILES = {"answers.parquet", "report.html", "results.json", "rows/heldout.jsonl"}


@pytest.fixture
def run(gsm8k_lab, tmp_path):
    """The directory of a finished run."""
    with Client(gsm8k_lab) as client:
        client.download("e1", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def fresh_wandb():
    """Let the library read its settings anew, as in a process of its own."""
    wandb.teardown()
    yield
    wandb.teardown()


def test_mlflow_has_parameters_figures_and_files_and_a_run_logged_twice_once(
    run, monkeypatch, tmp_path
):
    from mlflow.tracking import MlflowClient  # noqa: PLC0415 - a second for every worker

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/runs.db")
    for _ in range(2):
        log_run(run, "mlflow")
    client = MlflowClient()
    group = client.get_experiment_by_name("modnorm")
    assert group is not None
    [found] = client.search_runs([group.experiment_id])
    assert (found.info.run_name, found.info.status) == ("stored", "FINISHED")
    assert found.data.params["population.size"] == "4"
    assert found.data.params["population.prefixes"] == "2, 4"
    assert found.data.metrics["heldout/base"] == 0.5
    assert found.data.metrics["heldout/N4_K2"] == 1.0
    lower, upper = (found.data.metrics[f"heldout/N4_K2_{one}"] for one in ("lower", "upper"))
    assert 0.3 < lower < upper == 1.0
    top = {one.path for one in client.list_artifacts(found.info.run_id)}
    rows = {one.path for one in client.list_artifacts(found.info.run_id, "rows")}
    assert top | rows >= FILES

    def full(*_, **__):
        raise OSError("no space\nleft")

    monkeypatch.setattr("mlflow.tracking.MlflowClient.log_batch", full)
    with pytest.raises(UnavailableError, match="mlflow failed: no space"):
        log_run(run, "mlflow")


def test_wandb_has_parameters_figures_and_files(run, monkeypatch, tmp_path, fresh_wandb):
    monkeypatch.setenv("WANDB_MODE", "offline")
    for place in ("WANDB_DIR", "WANDB_DATA_DIR", "WANDB_CACHE_DIR"):
        monkeypatch.setenv(place, str(tmp_path))
    log_run(run, "wandb")
    wandb.teardown()  # its service closes the file
    records = list(wandb_records(next(tmp_path.rglob("run-*.wandb"))))
    [stored] = [record.run for record in records if record.HasField("run")]
    assert (stored.display_name, stored.project) == ("stored", "modnorm")
    config = {item.key: json.loads(item.value_json) for item in stored.config.update}
    assert config["population.size"] == 4
    summary = {
        item.key or "/".join(item.nested_key): json.loads(item.value_json)
        for record in records
        for item in record.summary.update
    }
    assert summary["heldout/N4_K2"] == 1.0
    [artifact] = [record.artifact for record in records if record.HasField("artifact")]
    assert {entry.path for entry in artifact.manifest.contents} >= FILES


def wandb_records(path):
    """Read the records of an offline run: a log in LevelDB's format."""
    data, parts, at = path.read_bytes(), [], 7
    while at < len(data):
        if 32_768 - at % 32_768 < 7:  # the rest of a block is padding
            at += 32_768 - at % 32_768
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        parts.append(data[at + 7 : at + 7 + size])
        at += 7 + size
        if kind in {1, 4}:  # a whole record, or its last part
            yield messages.Record.FromString(b"".join(parts))  # type: ignore[attr-defined]
            parts = []


def test_wandb_without_credentials_is_refused(run, monkeypatch, tmp_path, fresh_wandb):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(PreconditionError, match="no credentials"):
        log_run(run, "wandb")


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_extra_is_named(monkeypatch, tmp_path, name):
    (tmp_path / name).mkdir()  # as wandb itself makes one
    monkeypatch.chdir(tmp_path)
    for module in [one for one in sys.modules if one.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if "site-packages" not in one])
    with pytest.raises(PreconditionError, match="not installed") as raised:
        log_run(tmp_path, name)
    assert f"'.[{name}]'" in str(raised.value.remedy)


def test_an_unknown_tracker_and_a_directory_without_a_run_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"did you mean mlflow\?"):
        log_run(tmp_path, "mlfow")
    with pytest.raises(InvalidInputError, match="not a run directory"):
        log_run(tmp_path, "mlflow")


def test_every_round_and_the_best_student_have_figures_with_bounds():
    values = distillation_figures(make_document(0.2, [0.6, 0.7], [0.5, 0.65]))
    assert values["heldout/base"] == 0.2
    assert values["heldout/student"] == values["heldout/round_1_student"] == 0.5
    assert values["heldout/round_2_vote"] == 0.7
    assert values["heldout/round_1_rank_1"] == 0.6 - 0.05
    assert values["development/round_2_student"] == 0.3
    assert values["heldout/student_lower"] < 0.5 < values["heldout/student_upper"]
