"""Results reused in chunks equal those that a comparison of single candidates would reuse."""

import random
from itertools import chain, cycle

import pytest
from sqlmodel import col, select

from modnorm.services.aggregator.experiments import reuse
from modnorm.services.aggregator.storage.codec import pack_coefficients
from modnorm.services.aggregator.storage.result_tables import AnswerSheet
from modnorm.services.aggregator.storage.states import JobState, Split
from modnorm.services.aggregator.storage.tables import Candidate, Job

PREFIXES, LARGEST = (8, 16, 24), 3
SPEC = {"size": 24, "prefixes": list(PREFIXES), "ensemble_sizes": [1, LARGEST]}
NO_RESULT = {"id", "experiment_id", "candidate", "split", "token"}
KINDS = ("done", "done", "partly", "partly", "failed", "pending")


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch):
    monkeypatch.setattr(reuse, "_AT_A_TIME", 5)


def rows_of(session, experiment_id, split):
    """Return jobs with their candidates and answers, by index."""
    query = (
        select(Job, Candidate, AnswerSheet)
        .join(
            Candidate,
            (col(Candidate.experiment_id) == Job.experiment_id)
            & (col(Candidate.index) == Job.candidate),
        )
        .outerjoin(AnswerSheet, col(AnswerSheet.job_id) == Job.id)
        .where(Job.experiment_id == experiment_id, Job.split == split)
    )
    return {job.candidate: (job, *others) for job, *others in session.exec(query)}


def read(world, experiment_id, split):
    with world.database.read() as session:
        return rows_of(session, experiment_id, split)


def mix(world, experiment_id, split, draw, kinds):
    """Store an unfinished phase: done, stopped, failed, pending and foreign candidates."""
    with world.database.write() as session:
        rows = sorted(rows_of(session, experiment_id, split).items())
        base, *others = [row for _, row in rows]
        draw.shuffle(others)
        dealt = zip((base, *others), chain(["done"], cycle(kinds)), strict=False)
        for (job, candidate, _), kind in dealt:
            if kind == "failed":
                job.state, job.error = JobState.FAILED, "nan"
            elif kind != "pending":
                finish(job, draw, whole=kind == "done")
                session.add(AnswerSheet(job_id=job.id, content=draw.randbytes(9)))
                candidate.coefficients = pack_coefficients((0.5, draw.random()))
                candidate.normaliser = draw.choice((None, 0.25))
            if kind == "other":
                candidate.scale_map_digest = "0" * 64


def finish(job, draw, *, whole):
    job.state, job.worker, job.attempts = JobState.DONE, "someone", draw.randrange(1, 3)
    job.answers_done, job.correct, job.tokens = 6, draw.randrange(7), draw.randrange(99)
    job.switch_seconds, job.generate_seconds, job.score_seconds = (draw.random() for _ in range(3))
    job.environment = '{"engine":"é"}'
    if whole:
        job.metric = draw.randrange(5) / 4  # with ties
    elif job.split is Split.SELECTION:
        job.reward_lower, job.reward_upper = 0.0, draw.randrange(4) / 4


def out(index, upper, complete):
    """Return whether the complete scores of its first prefix exclude a candidate."""
    prefix = next(prefix for prefix in PREFIXES if index < prefix)
    keys = sorted((-score, other) for other, score in complete.items() if 0 <= other < prefix)
    return len(keys) >= LARGEST and (-upper, index) > keys[LARGEST - 1]


def one_by_one(there, here, split, *, full, same_experts):
    """Return the candidates with valid results, checked one by one."""
    names = ("noise", "seed", "method", "radius", "scale_map_digest", "lineage")
    done = {index: row for index, row in there.items() if row[0].state is JobState.DONE}
    common = {
        index: job
        for index, (job, candidate, _) in done.items()
        if index in here
        and all(getattr(candidate, name) == getattr(here[index][1], name) for name in names)
    }
    complete = {index: job.metric for index, job in common.items() if job.metric is not None}
    valid = set(complete)
    for index, job in common.items():
        if full or index in complete:
            continue
        if split is Split.HELDOUT:
            holds = same_experts and len(common) == len(done)
        else:
            holds = index >= 0 and out(index, job.reward_upper, complete)
        valid |= {index} if holds else set()
    return valid


def check(world, first, second, split, valid):
    there, here = read(world, first, split), read(world, second, split)
    for index, (job, candidate, sheet) in here.items():
        found = job.model_dump(exclude=NO_RESULT)
        if index in valid:
            done, theirs, copied = there[index]
            assert found == done.model_dump(exclude=NO_RESULT)
            assert sheet.content == copied.content
            assert candidate.coefficients == theirs.coefficients
            assert candidate.normaliser == theirs.normaliser
        else:
            fresh = Job(id="", experiment_id="", candidate=index, split=split)
            assert (found, sheet) == (fresh.model_dump(exclude=NO_RESULT), None)
            assert split is Split.HELDOUT or candidate.coefficients is None
    assert world.stores.experiments.get(second).experiment.jobs_done == len(valid)


@pytest.mark.parametrize("statistics", ["full", "experts"])
@pytest.mark.parametrize("seed", range(3))
def test_scores(world, seed, statistics):
    first = world.select("first", statistics=statistics, **SPEC)
    mix(world, first, Split.SELECTION, random.Random(seed), (*KINDS, "other"))
    world.stores.experiments.cancel(first)
    before = read(world, first, Split.SELECTION)
    second = world.select("second", statistics=statistics, **SPEC)
    here = read(world, second, Split.SELECTION)
    full = statistics == "full"
    valid = one_by_one(before, here, Split.SELECTION, full=full, same_experts=True)
    assert 1 < len(valid) < len(here)
    check(world, first, second, Split.SELECTION, valid)
    stopped = sum(before[index][0].reward_upper is not None for index in valid)
    assert world.stores.experiments.get(second).experiment.candidates_stopped == stopped
    assert bool(stopped) != full
    assert read(world, first, Split.SELECTION) == before


@pytest.mark.parametrize(
    "kinds", [("partly", "pending", "failed", "done"), ("done", "partly", "other")]
)
def test_held_out_answers(world, kinds):
    first = world.select("first", **SPEC)
    answer_while(world, first, "SELECTING")
    mix(world, first, Split.HELDOUT, random.Random(1), kinds)
    world.stores.experiments.cancel(first)
    before = read(world, first, Split.HELDOUT)
    second = world.select("second", **SPEC)
    answer_while(world, second, "SELECTING")
    here = read(world, second, Split.HELDOUT)
    valid = one_by_one(before, here, Split.HELDOUT, full=False, same_experts=True)
    partly = [index for index in valid if before[index][0].metric is None]
    assert bool(partly) == ("other" not in kinds)
    assert 1 <= len(valid) < len(here)
    check(world, first, second, Split.HELDOUT, valid)


def answer_while(world, experiment_id, state):
    while world.state(experiment_id) == state:
        world.stores.jobs.report(world.report_of(world.claim_next(experiment_id)))
