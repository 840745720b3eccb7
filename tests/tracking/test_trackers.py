"""Runs as the real libraries store them: MLflow in SQLite, Weights & Biases offline."""

import json
import shutil

import pytest

from modnorm.client.client import Client
from modnorm.client.tracking import RunTracking
from modnorm.errors import EvaluationError
from modnorm.tracking.registry import load_tracker
from modnorm.v1 import experiment_pb2 as experiments

# MLflow's own use of SQLAlchemy 2.1.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*loader strategy is deprecated:DeprecationWarning"
)

FILES = {"answers.parquet", "report.html", "results.json", "rows/heldout.jsonl"}


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def track(gsm8k_lab, gsm8k_experiment, event, warnings):
    """Track the stored experiment from its first event to its files, in no time at all."""

    def track(name, *, failure=None):
        with (
            Client(gsm8k_lab) as client,
            RunTracking(load_tracker(name), warnings.append, clock=lambda: 0.0) as tracking,
        ):
            tracking.begin(gsm8k_experiment, "title")
            for cursor, (done, best) in enumerate([(1, 0.25), (2, 0.5), (4, 1.0)]):
                tracking.show(event(cursor, done, best), 0.125)
            tracking.show(event(3, 4, 1.0, experiments.EXPERIMENT_STATE_SUCCEEDED), 0.125)
            if failure is not None:
                raise failure
            tracking.finish_from_lab(client, gsm8k_experiment)

    return track


@pytest.fixture(scope="module")
def mlflow_database(tmp_path_factory):
    """An empty database of MLflow, whose migrations take a second."""
    from mlflow.tracking import MlflowClient  # noqa: PLC0415 - a second for every worker

    path = tmp_path_factory.mktemp("mlflow") / "empty.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def mlflow_runs(monkeypatch, tmp_path, mlflow_database):
    """Let MLflow store runs in this directory; returns all of them."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(mlflow_database, "runs.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/runs.db")

    def runs():
        from mlflow.tracking import MlflowClient  # noqa: PLC0415 - a second for every worker

        client = MlflowClient()
        experiment = client.get_experiment_by_name("modnorm")
        assert experiment is not None
        return client, client.search_runs([experiment.experiment_id])

    return runs


@pytest.fixture
def offline(monkeypatch, tmp_path, fresh_wandb):
    """Let Weights & Biases store runs in this directory."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    for place in ("WANDB_DIR", "WANDB_DATA_DIR", "WANDB_CACHE_DIR"):
        monkeypatch.setenv(place, str(tmp_path))
    return tmp_path


def test_mlflow_has_parameters_steps_accuracies_and_files(track, mlflow_runs, warnings):
    track("mlflow")
    assert warnings == []
    client, [run] = mlflow_runs()
    assert (run.info.run_name, run.info.status) == ("stored", "FINISHED")
    assert run.data.tags["modnorm.experiment"] == "e1"
    assert run.data.params["population.size"] == "4"
    assert run.data.params["population.prefixes"] == "2, 4"
    assert run.data.params["method.name"] == "randopt"
    best = client.get_metric_history(run.info.run_id, "selecting/best_reward")
    assert [(one.step, one.value, one.timestamp) for one in best] == [
        (1, 0.25, 1_000_000),
        (4, 1.0, 1_002_000),
    ]
    assert run.data.metrics["selecting/base_reward"] == 0.125
    assert run.data.metrics["selecting/done"] == run.data.metrics["selecting/total"] == 4
    assert {name.split("/")[0] for name in run.data.metrics} == {"selecting", "heldout"}
    assert run.data.metrics["heldout/base"] == 0.5
    assert run.data.metrics["heldout/N4_K2"] == 1.0
    lower, upper = (run.data.metrics[f"heldout/N4_K2_{one}"] for one in ("lower", "upper"))
    assert 0.3 < lower < upper == 1.0
    top = {one.path for one in client.list_artifacts(run.info.run_id)}
    rows = {one.path for one in client.list_artifacts(run.info.run_id, "rows")}
    assert top | rows >= FILES


def test_wandb_has_parameters_steps_accuracies_and_files(track, offline, wandb_records, warnings):
    track("wandb")
    assert warnings == []
    records = wandb_records(offline)
    [run] = [record.run for record in records if record.HasField("run")]
    assert (run.run_id, run.display_name, run.project) == ("e1", "stored", "modnorm")
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["population.size"] == 4
    histories = [record.history for record in records if record.HasField("history")]
    points = [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in one.item}
        for one in histories
    ]
    assert [(p["selecting/done"], p["selecting/best_reward"]) for p in points] == [
        (1, 0.25),
        (4, 1.0),
    ]
    summary = {
        item.key or "/".join(item.nested_key): json.loads(item.value_json)
        for record in records
        for item in record.summary.update
    }
    assert summary["heldout/N4_K2"] == 1.0
    [artifact] = [record.artifact for record in records if record.HasField("artifact")]
    names = {entry.path for entry in artifact.manifest.contents}
    assert names >= FILES


@pytest.mark.parametrize(
    ("failure", "status"),
    [(EvaluationError("no engine"), "FAILED"), (KeyboardInterrupt(), "KILLED")],
)
def test_a_run_that_ends_early_says_so_and_is_continued(track, mlflow_runs, failure, status):
    with pytest.raises(type(failure)):
        track("mlflow", failure=failure)
    _, [run] = mlflow_runs()
    assert run.info.status == status
    track("mlflow")
    _, [again] = mlflow_runs()
    assert (again.info.run_id, again.info.status) == (run.info.run_id, "FINISHED")


def test_a_store_that_breaks_in_the_middle_is_warned_of_once(
    track, mlflow_runs, monkeypatch, warnings
):
    def full(*_, **__):
        raise OSError("no space\nleft")

    monkeypatch.setattr("mlflow.tracking.MlflowClient.log_batch", full)
    track("mlflow")
    assert warnings == ["the tracker failed and logs nothing more: OSError: no space"]


def test_a_watched_experiment_is_tracked(modnorm, gsm8k_lab, mlflow_runs):
    code, _, err = modnorm("watch", "e1", "--server", gsm8k_lab, "--track", "mlflow", "--quiet")
    assert code == 0, err
    assert "warning" not in err
    _, [run] = mlflow_runs()
    assert run.data.metrics["heldout/N2_K1"] == 1.0
    assert run.info.status == "FINISHED"


def test_a_phase_without_jobs_has_no_point(gsm8k_experiment, mlflow_runs, event, warnings):
    created = event(0, 0, 0.0, experiments.EXPERIMENT_STATE_PENDING)
    created.progress.Clear()
    with RunTracking(load_tracker("mlflow"), warnings.append) as tracking:
        tracking.begin(gsm8k_experiment, "title")
        tracking.show(created, None)
        tracking.show(event(1, 1, 0.25), None)
    assert warnings == []
    client, [run] = mlflow_runs()
    assert {name.split("/")[0] for name in run.data.metrics} == {"selecting"}
    [done] = client.get_metric_history(run.info.run_id, "selecting/done")
    assert (done.step, done.value) == (1, 1.0)
