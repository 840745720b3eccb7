"""Experiments from their creation to their votes, over real gRPC, queue and databases."""

import asyncio
import hashlib
import json
import threading

import pytest
from google.protobuf import json_format

from modnorm.errors import ConflictError, InvalidInputError, NotFoundError, StaleLeaseError
from modnorm.search.ranking import mean_reward
from modnorm.search.voting import count_votes
from modnorm.services.aggregator.experiments import phases
from modnorm.services.aggregator.storage.tables import Split
from modnorm.tasks import get_task
from modnorm.tasks.columns import prompts_digest
from modnorm.tasks.row_files import OpenedSource
from modnorm.v1 import common_pb2, evaluation_pb2, experiment_pb2
from modnorm.wire.answer_sheets import pack_text
from tests.services.aggregator.world import on_both_databases
from verification.labs.waiting import HANG_SECONDS, wait_until

SUCCEEDED = experiment_pb2.EXPERIMENT_STATE_SUCCEEDED
CANCELLED = experiment_pb2.EXPERIMENT_STATE_CANCELLED
CALIBRATING = experiment_pb2.EXPERIMENT_STATE_CALIBRATING
SELECTING = experiment_pb2.EXPERIMENT_STATE_SELECTING
NAMED = {"name": "modular_norm", "radius": 0.2}


@on_both_databases
async def test_an_experiment_from_its_creation_to_its_votes(start_lab, spec, database_url):
    async with start_lab(database_url) as lab:
        created = await lab.create(spec())
        assert created.state == experiment_pb2.EXPERIMENT_STATE_PENDING
        assert created.spec.population.pool == "nested"
        worker = lab.worker()
        events = await lab.finish(created.id, worker)
        experiment = await lab.get(created.id)
        assert experiment.state == SUCCEEDED
        await lab.check_results(experiment)
        assert [event.cursor for event in events] == list(range(1, len(events) + 1))
        assert (events[-1].state, events[-1].cursor) == (SUCCEEDED, experiment.last_cursor)
        assert len(worker.reports) == len(set(worker.reports))
        await check_resuming(lab, created.id, events)
        await check_reading(lab, experiment)


async def check_resuming(lab, experiment_id, events):
    resumed = [event async for event in lab.watch(experiment_id, events[4].cursor)]
    assert resumed == events[5:]
    assert [event async for event in lab.watch(experiment_id, len(events))] == []
    for cursor in (-1, len(events) + 1):
        async with lab.raises(InvalidInputError, "cursor"):
            await anext(lab.watch(experiment_id, cursor))


async def check_reading(lab, experiment):
    """Read files, lists and missing entries."""
    provenance = experiment.provenance
    for name, digest in {
        "rows/selection.jsonl": provenance.selection_digest,
        "rows/heldout.jsonl": provenance.heldout_digest,
        "scale_map.json": provenance.scale_map_digest,
    }.items():
        content = await lab.file(experiment.id, name)
        assert hashlib.sha256(content.removesuffix(b"\n")).hexdigest() == digest
    heldout = await lab.file(experiment.id, "rows/heldout.jsonl")
    prompts = [get_task("gsm8k").messages(json.loads(row)) for row in heldout.splitlines()]
    assert provenance.prompts_digest == prompts_digest(prompts)
    async with lab.raises(NotFoundError, "name"):
        await lab.file(experiment.id, "profile.json")
    listed = await lab.list(page_size=1)
    assert [one.id for one in listed.experiments] == [experiment.id]
    assert listed.next_page_token == ""
    assert not listed.experiments[0].ensembles
    selected = await lab.answers(experiment.id, 0, Split.SELECTION)
    candidates = await lab.candidates(experiment.id)
    assert candidates[1].selection_reward == mean_reward([one.reward for one in selected])
    check_environments(candidates, provenance)
    await check_counts(lab, experiment.id, candidates)
    async with lab.raises(NotFoundError, "id"):
        await lab.get("nothing")


async def check_counts(lab, experiment_id, candidates):
    """Each candidate counts its answers: all, right ones, those with a vote, and cut-off ones."""
    for one in candidates:
        selected = await lab.answers(experiment_id, one.index, Split.SELECTION)
        assert one.selection_answers == len(selected) == 5
        assert one.selection_correct == sum(answer.correct for answer in selected)
        assert one.selection_valid == sum(answer.vote is not None for answer in selected)
        assert one.selection_truncated == sum(answer.truncated for answer in selected)
        voted = one.heldout_metric is not None
        assert (one.heldout_answers, one.heldout_attempts) == ((7, 1) if voted else (0, 0))
    assert {one.selection_correct for one in candidates} != {0}


def check_environments(candidates, provenance):
    """Each candidate has the environments of its selection and held-out answers."""
    assert {(one.heldout_metric is not None) for one in candidates} == {True, False}
    for one in candidates:
        voted = {"engine": "made up", "rows": provenance.heldout_digest}
        assert one.environment == {**voted, "rows": provenance.selection_digest}
        assert one.heldout_environment == (voted if (one.heldout_metric is not None) else {})


async def test_experiments_are_listed_in_pages(start_lab, spec):
    async with start_lab() as lab:
        made = [(await lab.create(spec(), f"request {index}")).id for index in range(3)]
        first = await lab.list(page_size=2)
        second = await lab.list(page_size=2, page_token=first.next_page_token)
        found = [one.id for page in (first, second) for one in page.experiments]
        assert found == made[::-1]
        assert second.next_page_token == ""
        for page in ({"page_size": -1}, {"page_size": 1001}, {"page_token": "junk"}):
            async with lab.raises(InvalidInputError, next(iter(page))):
                await lab.list(**page)


async def test_the_commit_of_a_dataset_is_recorded(start_lab, spec, monkeypatch):
    rows = [(f"row {n}", {"question": f"What is {n}?", "answer": f"#### {n}"}) for n in range(3)]
    monkeypatch.setattr(
        "modnorm.tasks.row_loading.read_dataset",
        lambda _spec, *, field: OpenedSource(iter(rows), "f" * 40),
    )
    async with start_lab() as lab:
        heldout = {"source": "openai/gsm8k", "split": "test", "revision": "main"}
        created = await lab.create(spec(task__heldout=heldout))
        assert created.provenance.heldout_revision == "f" * 40
        assert created.provenance.heldout_rows == 3
        assert created.provenance.selection_revision == ""
        assert created.spec.task.heldout.revision == "main"
        rows.append(("row 3", rows[0][1]))  # the Hub is not asked again
        assert (await lab.create(spec(task__heldout=heldout))).id == created.id


async def test_a_method_with_a_profile_is_calibrated_first(start_lab, spec, tmp_path):
    async with start_lab() as lab:
        calibration = {"examples": 2, "layers_per_example": 4, "iterations": 1}
        created = await lab.create(spec(method=NAMED, calibration=calibration))
        events = await lab.finish(created.id, lab.worker())
        experiment = await lab.get(created.id)
        assert experiment.state == SUCCEEDED
        assert experiment.progress.examples_done == experiment.progress.examples_total == 2
        assert CALIBRATING in {one.state for one in events}
        await check_named_profiles(lab, spec, experiment.provenance.profile_digest)
        profile = await lab.file(created.id, "profile.json")
        await check_profile_files(lab, spec, tmp_path, profile)


async def check_named_profiles(lab, spec, digest):
    named = await lab.create(spec(method={**NAMED, "profile": digest}), "named")
    assert named.provenance.profile_digest == digest
    again = await lab.create(spec(method={**NAMED, "profile": digest}), "named")
    assert again.id == named.id
    events = [event async for event in _until(lab.watch(named.id), SELECTING)]
    assert CALIBRATING not in {event.state for event in events}
    async with lab.raises(InvalidInputError, "method.profile"):
        await lab.create(spec(method={**NAMED, "profile": "0" * 64}), "unknown")
    async with lab.raises(InvalidInputError, "method.profile"):
        await lab.create(spec(method__profile=digest), "needless")


async def _until(events, state):
    async for event in events:
        yield event
        if event.state == state:
            return


async def check_profile_files(lab, spec, folder, profile):
    content = json.loads(profile)
    mine, other, broken = (folder / f"{name}.json" for name in ("mine", "other", "broken"))
    mine.write_text(json.dumps(content, indent=2))
    other.write_text(json.dumps({**content, "model_digest": "0" * 64}))
    broken.write_text("{")
    created = await lab.create(spec(method={**NAMED, "profile": str(mine)}), "file")
    assert created.provenance.profile_digest == hashlib.sha256(profile).hexdigest()
    for path in (other, broken, folder / "absent.json", "/etc/hostname"):
        async with lab.raises(InvalidInputError, "method.profile"):
            await lab.create(spec(method={**NAMED, "profile": str(path)}), "bad")
    mine.write_text(json.dumps({**content, "application": {}}))
    async with lab.raises(ConflictError, "method.profile"):
        await lab.create(spec(method={**NAMED, "profile": str(mine)}), "file")


async def test_a_cancelled_experiment_stops_its_workers(start_lab, spec):
    async with start_lab() as lab:
        created = await lab.select(spec())
        worker = lab.worker()
        job = await worker.claim_next()
        assert not (await lab.heartbeat(job.lease, answers_done=1)).cancel
        for _ in range(2):
            assert (await lab.cancel(created.id)).state == CANCELLED
        assert (await lab.finish(created.id))[-1].state == CANCELLED
        assert (await lab.heartbeat(job.lease, answers_done=1)).cancel
        async with lab.raises(StaleLeaseError):
            await worker.report(job)


async def test_the_votes_of_an_experiment_delay_no_report_of_another(
    start_lab, spec, postgres_url, monkeypatch
):
    counting, proceed, released = threading.Event(), threading.Event(), []

    def held(ballots):
        counting.set()
        released.append(proceed.wait(HANG_SECONDS))
        return count_votes(ballots)

    monkeypatch.setattr(phases, "count_votes", held)
    async with start_lab(postgres_url) as lab:
        first = await lab.select(spec(), "first")
        other = await lab.select(spec(reuse=False), "other")
        async with lab.working(lab.worker(name="first")):
            assert await asyncio.to_thread(counting.wait, HANG_SECONDS)
            worker = lab.worker(name="other")
            job = await worker.claim_next()
            assert job.experiment_id == other.id
            await worker.report(job)
            assert not released
            proceed.set()
            assert [event.state async for event in lab.watch(first.id)][-1] == SUCCEEDED


async def test_reports_out_of_shape_are_refused(start_lab, spec):
    async with start_lab() as lab:
        async with lab.raises(NotFoundError, "lease.job_id"):
            await lab.jobs.ReportJob(evaluation_pb2.ReportJobRequest(), timeout=HANG_SECONDS)
        await lab.create(spec())
        report = await (worker := lab.worker()).report_of(await worker.claim_next())
        for unreadable in (b"", b"none", pack_text("[[0]]"), report.answers[:-1]):
            report.answers = unreadable
            async with lab.raises(InvalidInputError, "answers"):
                await lab.jobs.ReportJob(report, timeout=HANG_SECONDS)
        for done in (-1, 2**31 - 1):
            async with lab.raises(InvalidInputError, "leases.answers_done"):
                await lab.heartbeat(evaluation_pb2.Lease(), answers_done=done)
        async with lab.raises(InvalidInputError, "worker"):
            await lab.worker(name="").claim()
        async with lab.raises(InvalidInputError, "kind"):
            await lab.fail(evaluation_pb2.Lease(), "UNSPECIFIED")


@pytest.mark.parametrize("changed", [{"drafts": "population"}, {"numerics": "batch_invariant"}])
async def test_the_settings_of_the_engine_go_with_every_job(start_lab, spec, changed):
    async with start_lab() as lab:
        asked = {"name": "vllm", "max_num_seqs": 64, **changed}
        await lab.create(spec(engine=asked))
        job = await lab.worker().claim_next()
        assert job.engine == json_format.ParseDict(asked, common_pb2.EngineSpec())


async def test_an_engine_too_short_for_the_rows_is_refused_before_anything_is_stored(
    start_lab, spec
):
    async with start_lab() as lab, lab.raises(InvalidInputError, "engine.max_model_len"):
        await lab.create(spec(engine={"max_model_len": 20}))


async def test_a_stopped_aggregator_leaves_no_threads(start_lab):
    before = set(threading.enumerate())

    def left():
        """The threads without those of the event loop, which it ends itself."""
        started = set(threading.enumerate()) - before
        return [one for one in started if not one.daemon and not one.name.startswith("asyncio")]

    async with start_lab() as lab:
        await lab.jobs.ClaimJob(evaluation_pb2.ClaimJobRequest(worker="w"))
        assert left()
    await asyncio.to_thread(wait_until, lambda: not left(), "the threads end")
