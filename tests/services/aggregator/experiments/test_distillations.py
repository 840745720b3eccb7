"""Rounds of distillations over a database, with synthetic answers and students."""

import json
from dataclasses import replace

import pytest
from sqlmodel import col, select

from modnorm.distillation.sampling_seeds import round_seed, training_seed
from modnorm.errors import NotFoundError, StaleLeaseError
from modnorm.services.aggregator.api.round_messages import round_results
from modnorm.services.aggregator.api.to_proto import fill_job, fill_training
from modnorm.services.aggregator.experiments.removal import remove_unused_students
from modnorm.services.aggregator.storage.states import (
    ArtifactKind,
    ExperimentState,
    FailureKind,
    JobState,
    Purpose,
    RoundPhase,
    Split,
)
from modnorm.services.aggregator.storage.tables import Job
from modnorm.services.aggregator.web.lab_catalog import LabCatalog
from modnorm.services.aggregator.web.stored_run import PageStores
from modnorm.services.common.access import callers
from modnorm.services.common.access.callers import ANYONE
from modnorm.v1 import evaluation_pb2, experiment_pb2
from tests.services.aggregator.experiments.conftest import TERMINAL, TRAINING_ROWS
from tests.services.aggregator.world import (
    LEASE_SECONDS,
    synthetic_answers,
)


def dataset(lab, record):
    digest = record.part.dataset_digest
    text = lab.world.stores.results.artifact(digest, ArtifactKind.DATASET)
    return [json.loads(line) for line in text.split("\n")]


def test_a_distillation_runs_all_its_rounds(lab):
    parent = lab.create()
    lab.run(parent)
    record = lab.get(parent)
    assert record.experiment.state is ExperimentState.SUCCEEDED
    base, first, second = record.rounds
    assert [each.part.phase for each in record.rounds] == [RoundPhase.DONE] * 3
    assert base.development is not None
    assert base.heldout is not None
    assert first.part.searched_model == "tiny"
    assert second.part.searched_model == f"student:{first.part.student_digest}"
    assert second.part.start_model == "tiny"
    assert second.heldout is not None
    results = round_results(record.rounds)
    assert [each.best for each in results].count(True) == 1
    assert not results[0].best
    assert results[1].training.tokens == 100
    assert results[1].spent.answers > 0
    for each in record.rounds[1:]:
        search = lab.get(each.part.search_id)
        assert search.experiment.state is ExperimentState.SUCCEEDED
        assert len(search.ensembles) == 2


def test_a_finished_distillation_has_no_open_jobs_in_its_progress(lab):
    parent = lab.create(rounds=1)
    advance = lab.world.stores.distillations.advance
    lab.run(parent, until=lambda: len(lab.children(parent, Purpose.EVALUATION)) == 2)
    (child,) = [one for one in lab.children(parent) if one.state not in TERMINAL]
    lab.world.stores.experiments.leave_pending(child.id, 4)
    lab.sample(child)
    for job_id in lab.world.stores.jobs.pending(child.id):
        advance(parent)
        lab.report(job_id)
    assert lab.get(parent).experiment.jobs_done == 1
    lab.run(parent)
    ended = lab.get(parent).experiment
    assert ended.jobs_done == ended.jobs_total == 2


def test_the_dataset_holds_right_answers_with_their_provenance(lab):
    parent = lab.create(rounds=1)
    lab.run(parent)
    record = lab.get(parent)
    (part,) = record.rounds[1:]
    lines = dataset(lab, part)
    assert lines
    counts = experiment_pb2.HarvestResult.FromString(part.part.harvest)
    assert counts.answers == 3 * 2 * TRAINING_ROWS
    assert counts.examples == counts.dataset_examples == len(lines)
    assert counts.rows == len({line["row"] for line in lines})
    search = lab.get(part.part.search_id)
    experts = json.loads(search.ensembles[-1].experts)
    for line in lines:
        row = line["row"]
        assert line["completion"] == [{"role": "assistant", "content": f"#### {row}"}]
        assert f"Say {row}." in json.dumps(line["prompt"])
        assert line["expert"]["candidate"] == experts[line["expert"]["rank"] - 1]
        assert line["round"] == 1
    assert all(sum(line["row"] == row for line in lines) <= 3 for row in range(TRAINING_ROWS))


def test_later_rounds_may_train_the_last_student_and_search_around_the_base(lab):
    parent = lab.create(search_around="base", train_from="student")
    lab.run(parent)
    _, first, second = lab.get(parent).rounds
    assert second.part.searched_model == "tiny"
    assert second.part.start_model == f"student:{first.part.student_digest}"
    seeds = [child.spec.population.seed for child in lab.children(parent, Purpose.SEARCH)]
    assert set(seeds) == {42, round_seed(42, 2)}


@pytest.mark.parametrize("accumulate", [False, True])
def test_datasets_accumulate_if_wanted(lab, accumulate):
    parent = lab.create(harvest={"samples": 2, "keep": 3, "accumulate": accumulate})
    lab.run(parent)
    _, first, second = lab.get(parent).rounds
    one, two = dataset(lab, first), dataset(lab, second)
    assert (two[: len(one)] == one) is accumulate


def test_only_rows_count_that_the_model_answers_wrongly(lab):
    parent = lab.create(rounds=1, harvest={"samples": 2, "keep": 3, "only_wrong": True})
    lab.run(parent)
    wrong = {each.row for each in synthetic_answers(-1, TRAINING_ROWS) if not each.correct}
    (part,) = lab.get(parent).rounds[1:]
    rows = {line["row"] for line in dataset(lab, part)}
    assert rows
    assert rows <= wrong


def test_the_harvest_cannot_see_held_out_rows(lab):
    parent = lab.create(rounds=1)
    lab.run(parent)
    (harvest,) = lab.children(parent, Purpose.HARVEST)
    heldout = lab.get(parent).experiment.heldout_digest
    assert heldout not in harvest.model_dump_json()
    assert harvest.heldout_digest == lab.get(parent).experiment.training_digest


def test_sampled_answers_have_seeds_of_their_own(lab):
    parent = lab.create(rounds=1)
    lab.run(parent, until=lambda: lab.children(parent, Purpose.HARVEST))
    (harvest,) = lab.children(parent, Purpose.HARVEST)
    seeds = set()
    for job_id in lab.world.stores.jobs.pending(harvest.id):
        message = evaluation_pb2.Job()
        fill_job(message, lab.world.claim(job_id), LEASE_SECONDS)
        assert message.split == evaluation_pb2.SPLIT_HARVEST
        assert message.sampling.temperature == 1.0
        assert message.sampling.top_p == 0.95
        seeds.add(message.sampling.seed)
    assert len(seeds) == 6


def test_a_training_job_names_all_that_a_trainer_needs(lab):
    parent = lab.create(rounds=1, training={"rank": 4, "learning_rate": 0.01})
    lab.run(parent, until=lambda: lab.world.stores.jobs.pending(parent, trains=True))
    (job_id,) = lab.world.stores.jobs.pending(parent, trains=True)
    assert job_id not in lab.world.stores.jobs.pending()
    assert lab.world.jobs.claim(job_id, "evaluator") is None
    claim = lab.claim_training(job_id)
    message = evaluation_pb2.TrainJob()
    fill_training(message, claim, claim.round, LEASE_SECONDS)
    assert message.model.name == "tiny"
    assert message.model_digest == "m" * 64
    assert message.settings.rank == 4
    assert message.settings.learning_rate == 0.01
    assert message.examples == len(dataset(lab, lab.get(parent).rounds[1]))
    assert message.seed == training_seed(42, 1)


def test_a_trainer_is_given_no_other_job(lab):
    parent = lab.create(rounds=1)
    lab.run(parent, until=lambda: lab.children(parent, Purpose.HARVEST))
    (harvest,) = lab.children(parent, Purpose.HARVEST)
    job_id = lab.world.stores.jobs.pending(harvest.id)[0]
    assert lab.claim_training(job_id) is None


def test_a_killed_trainer_is_followed_by_another(lab):
    parent = lab.create(rounds=1)
    lab.run(parent, until=lambda: lab.world.stores.jobs.pending(parent, trains=True))
    (job_id,) = lab.world.stores.jobs.pending(parent, trains=True)
    killed = lab.claim_training(job_id)
    late = lab.report_of(killed)
    lab.world.now += LEASE_SECONDS + 1
    change = lab.world.jobs.reap(job_id)
    assert change.training == (job_id,)
    assert change.pending == ()
    other = lab.claim_training(job_id, "other")
    with pytest.raises(StaleLeaseError):
        lab.trainings.report(late)
    report = lab.report_of(other)
    lab.trainings.report(report)
    lab.trainings.report(report)
    lab.run(parent)
    assert lab.get(parent).rounds[1].part.student_digest == report.student_digest


def test_the_student_of_a_cancelled_training_is_removed_as_obsolete(lab):
    parent = lab.create(rounds=1)
    lab.run(parent, until=lambda: lab.world.stores.jobs.pending(parent, trains=True))
    (job_id,) = lab.world.stores.jobs.pending(parent, trains=True)
    report = lab.report_of(lab.claim_training(job_id))
    lab.world.stores.experiments.cancel(parent)
    for _ in range(2):
        with pytest.raises(StaleLeaseError):
            lab.trainings.report(report)
    assert remove_unused_students(lab.world.database, lab.world.students) == 1
    assert lab.world.students.path(report.student_digest) is None


def test_the_student_of_a_lost_lease_is_removed_as_obsolete(lab):
    """Two trainings of one job may round differently."""
    parent = lab.create(rounds=1)
    lab.run(parent, until=lambda: lab.world.stores.jobs.pending(parent, trains=True))
    (job_id,) = lab.world.stores.jobs.pending(parent, trains=True)
    late = lab.report_of(lab.claim_training(job_id))
    student = lab.world.students.root / late.student_digest
    late.student_digest = "e" * 64
    student.rename(student.with_name(late.student_digest))
    lab.world.now += LEASE_SECONDS + 1
    lab.world.jobs.reap(job_id)
    report = lab.report_of(lab.claim_training(job_id, "other"))
    with pytest.raises(StaleLeaseError):
        lab.trainings.report(late)
    lab.trainings.report(report)
    assert remove_unused_students(lab.world.database, lab.world.students) == 1
    assert lab.world.students.path(late.student_digest) is None
    assert lab.world.students.path(report.student_digest) is not None


def test_a_report_without_its_student_is_refused(lab):
    parent = lab.create(rounds=1)
    lab.run(parent, until=lambda: lab.world.stores.jobs.pending(parent, trains=True))
    (job_id,) = lab.world.stores.jobs.pending(parent, trains=True)
    report = lab.report_of(lab.claim_training(job_id))
    report.student_digest = "f" * 64
    with pytest.raises(NotFoundError):
        lab.trainings.report(report)


def test_the_progress_of_a_training_becomes_events(lab):
    parent = lab.create(rounds=1)
    lab.run(parent, until=lambda: lab.world.stores.jobs.pending(parent, trains=True))
    (job_id,) = lab.world.stores.jobs.pending(parent, trains=True)
    claim = lab.claim_training(job_id)
    lease = evaluation_pb2.Lease(job_id=job_id, token=claim.job.token)
    progress = evaluation_pb2.TrainProgress(step=2, steps=5, loss=1.5, tokens=40)
    for _ in range(2):
        assert lab.trainings.progress(lease, progress) == parent
    events, _ = lab.world.stores.events.after(parent, 0, 1_000)
    steps = [event.message for event in events if "step 2 of 5" in event.message]
    assert len(steps) == 1
    assert "loss 1.5000" in steps[0]


def test_a_failed_part_fails_the_distillation(lab):
    parent = lab.create(rounds=1)
    lab.run(parent, until=lambda: lab.children(parent, Purpose.SEARCH))
    (search,) = lab.children(parent, Purpose.SEARCH)
    lab.world.stores.experiments.fail(search.id, "no such luck")
    lab.run(parent)
    experiment = lab.get(parent).experiment
    assert experiment.state is ExperimentState.FAILED
    assert "round 1: the search failed: no such luck" in experiment.error


def test_a_failed_training_fails_the_distillation(lab):
    parent = lab.create(rounds=1)
    lab.run(parent, until=lambda: lab.world.stores.jobs.pending(parent, trains=True))
    (job_id,) = lab.world.stores.jobs.pending(parent, trains=True)
    claim = lab.claim_training(job_id)
    lab.world.jobs.fail(job_id, claim.job.token, FailureKind.CANDIDATE, "the loss is not finite")
    experiment = lab.get(parent).experiment
    assert experiment.state is ExperimentState.FAILED
    assert "the loss is not finite" in experiment.error


def test_a_cancelled_distillation_cancels_its_parts(lab):
    parent = lab.create()
    lab.run(parent, until=lambda: lab.children(parent, Purpose.SEARCH))
    lab.world.stores.experiments.cancel(parent)
    assert lab.world.stores.distillations.advance(parent) is None
    states = {child.state for child in lab.children(parent)}
    assert states <= {ExperimentState.SUCCEEDED, ExperimentState.CANCELLED}
    assert not lab.world.stores.jobs.pending()


def test_a_harvest_without_a_right_answer_fails_with_the_remedy(lab, monkeypatch):
    parent = lab.create(rounds=1, harvest={"samples": 1, "keep": 1})
    lab.run(parent, until=lambda: lab.children(parent, Purpose.HARVEST))
    (harvest,) = lab.children(parent, Purpose.HARVEST)
    wrong = [replace(each, correct=False) for each in synthetic_answers(1, TRAINING_ROWS)]
    for job_id in lab.world.stores.jobs.pending(harvest.id):
        lab.world.jobs.report(lab.world.report_of(lab.world.claim(job_id), wrong))
    lab.run(parent)
    experiment = lab.get(parent).experiment
    assert experiment.state is ExperimentState.FAILED
    assert "nothing to train on" in experiment.error
    assert "distillation.rows" in experiment.remedy


def test_searches_are_listed_and_other_parts_are_not(lab):
    parent = lab.create(rounds=1)
    lab.run(parent)
    listed = {experiment.id for experiment, _ in lab.world.stores.experiments.page(10, None)}
    searches = {child.id for child in lab.children(parent, Purpose.SEARCH)}
    assert listed == {parent, *searches}


def test_each_step_is_safe_to_repeat(lab):
    """A second aggregator may take the same steps at the same time."""
    parent = lab.create(rounds=1)
    steps = lab.world.stores.distillations
    while lab.world.state(parent) not in TERMINAL:
        steps.begin(parent)
        lab.step(parent)
    assert len(lab.children(parent)) == 4
    assert Split.TRAINING.value == "training"


def done_jobs(lab, parent):
    """Return the fencing token of each finished job of a distillation's parts, by content."""
    parts = [child.id for child in lab.children(parent)]
    query = select(Job.content_key, Job.token).where(
        col(Job.experiment_id).in_(parts), Job.state == JobState.DONE
    )
    with lab.world.database.read() as session:
        return dict(session.exec(query).all())


def test_a_distillation_submitted_again_repeats_nothing_that_is_finished(lab):
    first = lab.create()
    lab.run(first, until=lambda: len(lab.children(first, Purpose.HARVEST)) == 2)
    lab.world.stores.experiments.cancel(first)
    finished = done_jobs(lab, first)
    second = lab.create("again", failures={"max_attempts": 5})
    lab.run(second)
    assert lab.get(second).experiment.state is ExperimentState.SUCCEEDED
    parts = [each.part for each in lab.get(second).rounds]
    again = done_jobs(lab, second)
    assert finished.keys() <= again.keys()
    assert {again[key] for key in finished} == {0}  # never leased
    earlier = [each.part.student_digest for each in lab.get(first).rounds]
    assert [part.student_digest for part in parts][:2] == earlier[:2]


def test_the_page_shows_the_rounds(lab):
    parent = lab.create()
    world = lab.world
    catalog = LabCatalog(
        PageStores(world.database, world.stores.experiments, world.stores.results)
    )
    lab.run(parent, until=lambda: lab.children(parent, Purpose.HARVEST))
    token = callers._caller.set(ANYONE)
    try:
        run = catalog.run(parent)
        assert run.live
        assert [each.number for each in run.rounds] == [0, 1]
        lab.run(parent)
        run = catalog.run(parent)
        assert (run.state, run.live, run.finished) == ("finished", False, False)
        assert [each.is_best for each in run.rounds].count(True) == 1
        assert run.rounds[2].searched == f"student:{run.rounds[1].student}"
        assert run.rounds[1].examples
        (search, _) = lab.children(parent, Purpose.SEARCH)
        assert catalog.run(search.id).document["ensembles"]
    finally:
        callers._caller.reset(token)


def test_a_search_takes_the_base_from_the_evaluation_of_its_model(lab):
    parent = lab.create()
    lab.run(parent)
    _, first, second = lab.get(parent).rounds
    for before, part in ((lab.get(parent).rounds[0], first), (first, second)):
        heldout = {job.split: job for job in lab.get(part.part.search_id).base}[Split.HELDOUT]
        assert before.heldout is not None
        assert heldout.metric == before.heldout.metric
        assert heldout.token == 0
