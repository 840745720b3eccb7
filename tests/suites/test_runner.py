"""The runner against a lab whose experiments end as a test decides."""

import json
import shlex
from dataclasses import dataclass, field

import grpc
import pytest

from modnorm.client.client import Client
from modnorm.client.resumption import resume_or_submit_shared
from modnorm.errors import ConflictError, InvalidInputError, UnavailableError
from modnorm.suites.cells import make_cells
from modnorm.suites.journal import Journal
from modnorm.suites.loading import setting
from modnorm.suites.outcomes import load_finished, profile_digest
from modnorm.suites.runner import SuiteRunner, suite_status
from modnorm.suites.suite_file import Suite
from modnorm.v1 import experiment_pb2 as experiments
from tests.faults import error_at
from tests.small_results import small_results

PENDING = experiments.EXPERIMENT_STATE_PENDING
SELECTING = experiments.EXPERIMENT_STATE_SELECTING
SUCCEEDED = experiments.EXPERIMENT_STATE_SUCCEEDED
FAILED = experiments.EXPERIMENT_STATE_FAILED
PROFILE = "ab" * 32

SUITE = Suite.model_validate(
    {
        "name": "small",
        "title": "Small",
        "base": {"model": "tiny-thicket", "population": {"size": 2}},
        "axes": {
            "method": {
                "r": {"method": {"name": "randopt", "sigma": 0.01}},
                "m": {"method": {"name": "modular_norm", "radius": 0.2}},
            },
            "task": {
                name: {"task": {"name": "countdown", "selection": f"{name}.jsonl", "heldout": "h"}}
                for name in ("a", "b")
            },
        },
        "seeds": [1],
        "profiles": {"axis": "task", "from": "a"},
    }
)
CELLS = make_cells(SUITE)
NAMES = [cell.id for cell in CELLS]


@dataclass
class Lab:
    """Keeps experiments by request id; each ends after a number of reads."""

    looks: int = 1
    failing: set[str] = field(default_factory=set)
    """Selection sources whose experiments fail."""
    refused: set[str] = field(default_factory=set)
    """Selection sources that are refused."""
    removed: set[str] = field(default_factory=set)
    """Selection sources whose experiments were removed after they had begun."""
    down: bool = False
    """Whether no experiment can be read."""
    outage: int = 0
    """Number of further calls that find no lab."""
    stored: dict[str, experiments.Experiment] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    most: int = 0
    """Largest number of open experiments at a time."""

    def answer(self, context):
        if self.outage:
            self.outage -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "starting")

    def create(self, request, context):
        self.answer(context)
        source = request.spec.task.selection.source
        if source in self.refused:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no rows in {source}")
        if request.request_id not in self.stored:
            self.stored[request.request_id] = experiments.Experiment(
                id=f"e{len(self.stored)}",
                request_id=request.request_id,
                spec=request.spec,
                state=PENDING,
            )
        open_ones = [one for one in self.stored.values() if one.state in {PENDING, SELECTING}]
        self.most = max(self.most, len(open_ones))
        return experiments.CreateExperimentResponse(experiment=self.stored[request.request_id])

    def get(self, request, context):
        self.answer(context)
        if self.down:
            context.abort(grpc.StatusCode.UNAVAILABLE, "down")
        known = [one for one in self.stored.values() if one.id == request.id]
        if not known:
            context.abort(grpc.StatusCode.NOT_FOUND, "there is no such experiment")
        (found,) = known
        if found.spec.task.selection.source in self.removed:
            context.abort(grpc.StatusCode.NOT_FOUND, "there is no such experiment")
        self.seen[found.id] = self.seen.get(found.id, 0) + 1
        if found.state in {PENDING, SELECTING}:
            self._advance(found)
        return experiments.GetExperimentResponse(experiment=found)

    def list(self, request, context):
        self.answer(context)
        return experiments.ListExperimentsResponse()

    def _advance(self, found):
        if found.spec.method.name == "modular_norm":
            found.provenance.profile_digest = PROFILE
        if self.seen[found.id] <= self.looks:
            found.state = SELECTING
        elif found.spec.task.selection.source in self.failing:
            found.state, found.error = FAILED, "the disk is full"
        else:
            found.state = SUCCEEDED


@pytest.fixture
def lab():
    return Lab()


@pytest.fixture
def client(lab, serve, servicer, quick_retries):
    service = servicer(
        CreateExperiment=lab.create, GetExperiment=lab.get, ListExperiments=lab.list
    )
    with Client(serve(service), timeout=3.0) as made:
        yield made


@pytest.fixture
def run(client, tmp_path, monkeypatch):
    """Run the cells; returns whether all are finished, and the cells whose files were written."""
    monkeypatch.setattr("modnorm.suites.runner.FIRST_PAUSE", 0.001)

    def make(cells=CELLS, *, in_flight=1, patience=0.0, spoil=lambda name: None):
        written = []

        def finish(experiment, place):
            spoil(place.path.name)
            written.append(place.path.name)
            results = small_results(json.loads((place.path / "spec.json").read_text()))
            results["provenance"] = {"profile_digest": experiment.provenance.profile_digest}
            (place.path / "results.json").write_text(json.dumps(results))

        journal = Journal(tmp_path, SUITE.name)
        journal.begin(())
        finished = load_finished(CELLS, tmp_path)[0]
        runner = SuiteRunner(
            client=client,
            cells=cells,
            profiles={name: profile_digest(run) for name, run in finished.items()},
            directory=tmp_path,
            journal=journal,
            submit=lambda spec, _in_flight: resume_or_submit_shared(client, spec, "suite"),
            finish=finish,
            in_flight=in_flight,
            patience=patience,
        )
        return runner.run(), written

    return make


def states(tmp_path):
    return {cell: each.state for cell, each in suite_status(SUITE.name, CELLS, tmp_path).items()}


def test_every_cell_runs_once_and_is_written(run, lab, tmp_path):
    assert states(tmp_path) == dict.fromkeys(NAMES, "waiting")
    assert run() == (True, NAMES)
    assert states(tmp_path) == dict.fromkeys(NAMES, "finished")
    assert run() == (True, [])
    assert len(lab.stored) == 4
    assert lab.most == 1


def test_several_are_in_flight_at_a_time(run, lab):
    lab.looks = 3
    run(CELLS[:3], in_flight=3)
    assert lab.most == 3


def test_a_cell_waits_for_the_profile_that_it_uses(run, lab):
    assert run() == (True, NAMES)
    profiles = {
        (one.spec.method.name, one.spec.task.selection.source): one.spec.method.profile
        for one in lab.stored.values()
    }
    assert profiles["modular_norm", "b.jsonl"] == PROFILE
    assert profiles["modular_norm", "a.jsonl"] == ""


def test_a_cell_fails_if_no_cell_makes_its_profile(run, tmp_path):
    finished, _ = run(CELLS[3:])
    assert not finished
    (standing,) = suite_status(SUITE.name, CELLS[3:], tmp_path).values()
    assert "m_a_1, whose profile it uses, is not among the cells" in standing.error


def test_a_failed_cell_stops_no_other_and_is_tried_again(run, lab, tmp_path):
    lab.failing = {"a.jsonl"}
    assert run() == (False, ["r_b_1", "m_b_1"])
    found = suite_status(SUITE.name, CELLS, tmp_path)
    assert found["r_a_1"].state == "failed"
    assert found["r_a_1"].error == "the disk is full"
    lab.failing = set()
    assert run() == (True, ["r_a_1", "m_a_1"])
    assert f"suite/{CELLS[0].spec.digest}/2" in lab.stored


def test_a_cell_whose_experiment_was_removed_stops_no_other(run, lab, tmp_path):
    lab.removed = {"a.jsonl"}
    assert run(CELLS[:2]) == (False, NAMES[1:2])
    record = suite_status(SUITE.name, CELLS, tmp_path)[NAMES[0]]
    assert (record.state, record.error) == ("failed", "there is no such experiment")


def test_a_submitted_cell_is_not_submitted_again(run, lab, tmp_path):
    run(CELLS[:1])
    (tmp_path / NAMES[0] / "results.json").unlink()
    assert states(tmp_path)[NAMES[0]] == "waiting"
    assert run(CELLS[:1]) == (True, NAMES[:1])
    assert len(lab.stored) == 1


def test_a_lab_that_goes_down_ends_the_run(run, lab, tmp_path):
    lab.looks, lab.down = 2, True
    with pytest.raises(UnavailableError):
        run(CELLS[:1])
    assert states(tmp_path)[NAMES[0]] == "interrupted"
    lab.down = False
    assert run(CELLS[:1]) == (True, NAMES[:1])
    assert len(lab.stored) == 1


@pytest.mark.parametrize("calls", [5, 10], ids=["back when asked again", "away for longer"])
def test_a_lab_that_goes_away_between_two_cells_is_waited_for(run, lab, calls):
    def go_away(name):
        lab.outage = calls if name == NAMES[0] else 0

    assert run(patience=30.0, spoil=go_away) == (True, NAMES)
    assert len(lab.stored) == 4


def test_a_lab_that_was_never_there_is_not_waited_for(run, lab):
    lab.outage = 100
    with pytest.raises(UnavailableError):
        run(patience=600.0)


def test_a_lab_whose_calls_take_as_long_as_connecting_is_given_up_too(run, lab, monkeypatch):
    def go_away(name):
        lab.outage = 100 if name == NAMES[0] else 0

    monkeypatch.setattr("modnorm.client.connection.CONNECT_SECONDS", 0.0)
    with pytest.raises(UnavailableError):
        run(patience=0.2, spoil=go_away)


@pytest.mark.parametrize("kind", [UnavailableError, InvalidInputError])
def test_a_cell_whose_files_cannot_be_fetched_stops_no_other(run, tmp_path, kind):
    def refuse(name):
        if name == NAMES[0]:
            raise kind("too large")

    assert run(spoil=refuse) == (False, NAMES[1:])
    assert states(tmp_path)[NAMES[0]] == "failed"


def test_a_directory_of_other_settings_is_refused_before_anything_runs(run, lab, tmp_path):
    run(CELLS[:1])
    results = tmp_path / NAMES[0] / "results.json"
    document = json.loads(results.read_text())
    document["spec"]["method"]["radius"] = 0.7
    results.write_text(json.dumps(document))
    with error_at("r_a_1: method.radius", "a run of other settings", kind=ConflictError):
        run()
    assert len(lab.stored) == 1


def test_a_journal_belongs_to_one_suite_with_its_settings(tmp_path):
    texts = ["engine.name=vllm", "method={name: randopt, sigma: 0.01}", "model.name='1'"]
    settings = list(map(setting, texts))
    Journal(tmp_path, "one").begin(settings)
    again = Journal(tmp_path, "one")
    again.begin(settings)
    with error_at("set", "begun with --set engine.name=vllm --set ", kind=ConflictError) as raised:
        again.begin([])
    options = shlex.split(raised.value.message.partition("begun with ")[2])
    assert list(map(setting, options[1::2])) == settings
    with pytest.raises(ConflictError, match="belongs to the suite 'one'"):
        Journal(tmp_path, "two")
    (tmp_path / "suite.json").write_text("[]")
    with pytest.raises(ConflictError, match="is no journal of a suite"):
        Journal(tmp_path, "one")
