"""Reuse of finished evaluations by content."""

import dataclasses
from contextlib import closing

import pytest

from modnorm.errors import InvalidInputError
from modnorm.services.aggregator.experiments import phases, reuse
from modnorm.services.aggregator.experiments.run_writing import candidate_row
from modnorm.services.aggregator.remove_old import remove_experiment
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.evaluation_cache import EvaluationCache
from modnorm.services.aggregator.storage.tables import JobState
from modnorm.tasks import get_task
from tests.services.aggregator import world as world_module
from tests.services.aggregator.world import MAP, World, on_both_databases, rows_text, scale_map

pytestmark = on_both_databases


@pytest.fixture
def world(world):
    world.reuse = True
    return world


def some_done(world, experiment_id, count):
    for job_id in world.pending(experiment_id)[:count]:
        world.report(world.claim(job_id))


def failed_after_three(world):
    """Store an experiment that fails after three finished jobs."""
    created = world.select("first")
    some_done(world, created, 3)
    world.experiments.fail(created, "the disk is full")
    return created


def records(world, experiment_id):
    return world.experiments.candidates(experiment_id)


def outcome(job):
    fields = job.model_dump(exclude={"id", "experiment_id", "token", "lease_deadline", "worker"})
    return {**fields, "worker": job.worker or None}


def last_event(world, experiment_id):
    events, _ = world.experiments.events(experiment_id, 0, 1000)
    return events[-1]


def answers(world, experiment_id, record):
    job = record.selection
    return world.experiments.answers(experiment_id, job.candidate, job.split)


def test_finished_results_are_reused_and_the_rest_is_pending(world):
    first = failed_after_three(world)
    before = world.experiments.get(first), records(world, first)
    world.now += 5
    second = world.select("second")
    states = [record.selection.state for record in records(world, second)]
    assert states == [JobState.DONE] * 3 + [JobState.PENDING] * 2
    for old, new in zip(records(world, first)[:3], records(world, second)[:3], strict=True):
        assert outcome(new.selection) == outcome(old.selection)
        assert new.candidate.coefficients == old.candidate.coefficients
        assert answers(world, second, new) == answers(world, first, old)
    rows = [
        [candidate_row(one).reused for one in records(world, each)] for each in (first, second)
    ]
    assert rows == [[False] * 5, [True] * 3 + [False] * 2]
    progress = world.experiments.get(second).progress
    assert (progress.jobs_done, progress.jobs_total) == (3, 5)
    assert "3 results are reused" in last_event(world, second).message
    assert (world.experiments.get(first), records(world, first)) == before


def test_failed_steps_are_retried(world):
    created = world.select("first", failures={"max_attempts": 2})
    some_done(world, created, 3)
    world.fail(world.claim_next(created))
    assert world.state(created) == "FAILED"
    second = world.select("second", failures={"max_attempts": 2})
    world.work(second)
    assert world.state(second) == "SUCCEEDED"
    assert [record.selection.attempts for record in records(world, second)] == [1] * 5


def test_an_experiment_may_end_when_it_begins(world, monkeypatch):
    def fail(*_):
        raise InvalidInputError("cannot be voted on")

    created = world.select("first")
    with monkeypatch.context() as patch:
        patch.setattr(phases, "count_votes", fail)
        world.work(created)
    assert world.state(created) == "FAILED"
    second = world.select("second")
    record = world.experiments.get(second)
    assert record.experiment.state == "SUCCEEDED"
    assert len(record.ensembles) == 2


FIVE, SEVEN = rows_text(5), rows_text(7)


def admitted(world, monkeypatch, **changes):
    """Change columns and rows that later experiments are created with."""
    admission, texts = world.admission, changes.pop("texts", ())

    def changed(spec):
        found = admission(spec)
        inputs = {**found.inputs, **changes}
        return dataclasses.replace(found, inputs=inputs, texts=[*found.texts, *texts])

    monkeypatch.setattr(world, "admission", changed)


def pending(world, experiment_id):
    return len(world.pending(experiment_id))


@pytest.mark.parametrize(
    ("changes", "evaluated"),
    [
        ({"size": 10}, 6),
        ({"size": 10, "prefixes": [4, 10]}, 6),
        ({"size": 2, "ensemble_sizes": [1]}, 0),
        ({"ensemble_sizes": [1, 2, 4]}, 0),
        ({"name": "another"}, 0),
        ({"failures": {"max_failed_candidates": 2}}, 0),
        ({"engine": {"max_num_seqs": 7}}, 5),
        ({"reuse": False}, 5),
    ],
)
def test_a_changed_spec_evaluates_what_is_new(world, changes, evaluated):
    world.work(world.select("first"))
    second = world.select("second", **changes)
    new = [job for job in records(world, second) if job.selection.state is not JobState.DONE]
    assert len(new) == evaluated
    world.work(second)
    assert world.state(second) == "SUCCEEDED"


@pytest.mark.parametrize(
    ("changes", "evaluated"),
    [
        ({"heldout_digest": SEVEN.digest, "heldout_rows": 7, "texts": [SEVEN]}, 0),
        ({"selection_digest": FIVE.digest, "selection_rows": 5, "texts": [FIVE]}, 5),
        ({"scorer": get_task("gsm8k", scorer="reference").scorer}, 5),
        ({"max_tokens": 9}, 5),
        ({"model_digest": "n" * 64}, 5),
    ],
)
def test_other_inputs_evaluate_what_they_change(world, monkeypatch, changes, evaluated):
    world.work(world.select("first"))
    admitted(world, monkeypatch, **changes)
    second = world.select("second")
    assert [one.selection.state for one in records(world, second)].count(JobState.PENDING) == (
        evaluated
    )


def test_experts_with_other_coefficients_are_evaluated(world, monkeypatch):
    """Unlike devices resolve other coefficients, and so other weights."""
    world.work(world.select("first"))
    admitted(world, monkeypatch, selection_digest=FIVE.digest, selection_rows=5, texts=[FIVE])
    second = world.select("second")
    for claim in map(world.claim, world.pending(second)):
        report = world.report_of(claim)
        other = tuple(value + 1 for value in report.descriptor.coefficients)
        descriptor = dataclasses.replace(report.descriptor, coefficients=other)
        world.jobs.report(dataclasses.replace(report, descriptor=descriptor))
    assert world.state(second) == "VOTING"
    assert pending(world, second) == 3


@pytest.mark.parametrize(
    ("module", "name", "value", "evaluated"),
    [
        (reuse, "prompts_digest", lambda _: "another", 5),
        (world_module, "MAP", dataclasses.replace(MAP, method="other"), 2),
        (world_module, "MAP", scale_map("randopt", 1), 4),
    ],
    ids=["other prompts of equal rows", "the same by another method", "other scales"],
)
def test_candidates_are_reused_by_content(world, monkeypatch, module, name, value, evaluated):
    """The base has no scale, so other scales do not change it."""
    failed_after_three(world)
    monkeypatch.setattr(module, name, value)
    assert pending(world, world.select("second")) == evaluated


def test_running_experiments_are_reused_too_and_failed_candidates_never(world):
    first = world.select("first", failures={"max_failed_candidates": 1})
    some_done(world, first, 2)
    claim = world.claim_next(first)
    world.fail(claim)
    assert world.state(first) == "SELECTING"
    assert pending(world, world.select("second")) == 3


def test_another_tenant_sees_nothing(world, monkeypatch):
    failed_after_three(world)
    create = world.experiments.create
    monkeypatch.setattr(
        world.experiments, "create", lambda *given: create(*given, tenant="others")
    )
    second = world.select("second")
    assert world.experiments.get(second).experiment.tenant == "others"
    assert pending(world, second) == 5


def test_a_removed_experiment_takes_no_answers_away(world):
    first = failed_after_three(world)
    second = world.select("second")
    before = records(world, second)
    with world.database.write() as session:
        remove_experiment(session, first)
    assert records(world, second) == before
    assert all(answers(world, second, one) for one in before[:3])


def test_another_database_reads_the_shared_evaluations(world, tmp_path):
    shared = EvaluationCache(tmp_path / "cache")
    world.database.evaluations = shared
    world.work(world.select("first"))
    with closing(Database(f"sqlite:///{tmp_path}/other.db", evaluations=shared)) as database:
        database.migrate()
        other = World(database, reuse=True)
        grown = other.select("grown", size=10)
        assert pending(other, grown) == 6
        other.work(grown)
        world.database.evaluations = None
        alone = world.select("alone", size=10, reuse=False)
        assert pending(world, alone) == 11
        world.work(alone)
        for one, same in zip(records(other, grown), records(world, alone), strict=True):
            assert outcome(one.selection) == outcome(same.selection)
            assert one.candidate.coefficients == same.candidate.coefficients
            assert answers(other, grown, one) == answers(world, alone, same)
        pairs = [each.experiments.get(i).ensembles for each, i in ((other, grown), (world, alone))]
        figures = [[(one.experts, one.metric) for one in ensembles] for ensembles in pairs]
        assert figures[0] == figures[1]


def test_a_damaged_cache_costs_only_the_reuse(world, tmp_path, caplog):
    world.database.evaluations = EvaluationCache(tmp_path)
    world.database.evaluations.find(())
    world.database.evaluations.close()
    (file,) = tmp_path.glob("evaluations-*.db")
    file.write_bytes(b"no database at all" * 100)
    world.database.evaluations = EvaluationCache(tmp_path)
    created = world.select()
    world.work(created)
    assert world.state(created) == "SUCCEEDED"
    assert "evaluations are not shared" in caplog.text
