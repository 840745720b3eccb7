"""Iterative runs from their creation to the state that they report."""

import asyncio
import hashlib
import threading
from contextlib import asynccontextmanager, contextmanager

import pytest
from sqlalchemy import Engine, event

from modnorm.baselines.es import es_seeds, es_step
from modnorm.baselines.generator import Generator
from modnorm.baselines.mezo import mezo_step, step_seed
from modnorm.baselines.zo import zo_step
from modnorm.checkpoint.families import physical_layout
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import InvalidInputError, NotFoundError
from modnorm.perturbation.lineage import Lineage
from modnorm.v1 import evaluation_pb2, experiment_pb2
from services.aggregator.messages import experiment_message
from services.aggregator.stores.experiments import ExperimentStore
from services.aggregator.tables import Candidate

SUCCEEDED = experiment_pb2.EXPERIMENT_STATE_SUCCEEDED
FAILED = experiment_pb2.EXPERIMENT_STATE_FAILED
LINEAGE = experiment_pb2.ARTIFACT_KIND_LINEAGE
DEVELOPMENT = {"source": "bundled:word-problems-selection", "offset": 10, "limit": 4}
ES = {
    "method": "es",
    "population": {"size": 3, "seed": 5},
    "iterative": {"updates": 4, "rate": 0.5, "monitor": [2]},
}
MEZO = {
    "method": "mezo",
    "population": {"seed": 5},
    "iterative": {
        "updates": 5,
        "rate": 0.5,
        "evaluate_every": 2,
        "development": DEVELOPMENT,
    },
}


def blend(job):
    """Let the answers of the synthetic worker depend on all that a candidate is."""
    given = job.descriptor
    text = f"{given.seed}/{given.radius}/{given.lineage_digest}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])


def sensitive(worker):
    """Let a synthetic worker answer by `blend`."""
    plain = worker.parts

    async def parts(job):
        seed, job.descriptor.seed = job.descriptor.seed, blend(job)
        found = await plain(job)
        found[0].header.descriptor.seed = job.descriptor.seed = seed
        return found

    worker.parts = parts
    return worker


@asynccontextmanager
async def worked(lab, count=1):
    async with lab.working(*(sensitive(lab.worker()) for _ in range(count))):
        yield


async def lineage_of(lab, experiment_id):
    return Lineage.from_json((await lab.artifact(experiment_id, LINEAGE)).decode())


async def run(start_lab, url, message, workers=1):
    """Run a spec in a lab of its own; return the experiment, its candidates and its lineage."""
    async with start_lab(url) as lab:
        created = await lab.create(message)
        async with worked(lab, workers):
            await lab.finish(created.id)
        experiment = await lab.get(created.id)
        assert experiment.state == SUCCEEDED, experiment.error
        return (
            experiment,
            await lab.candidates(created.id),
            await lineage_of(lab, created.id),
        )


def test_es_is_the_same_with_one_worker_and_with_three(start_lab, spec, postgres_url, tmp_path):
    """On databases of either kind, too."""
    message = spec(**ES)
    sqlite_url = f"sqlite:///{tmp_path}/one.db"
    experiment, candidates, lineage = asyncio.run(run(start_lab, sqlite_url, message))
    again, _, same = asyncio.run(run(start_lab, postgres_url, message, workers=3))

    assert same == lineage
    assert [one.lineage_digest for one in again.states] == [
        one.lineage_digest for one in experiment.states
    ]
    rewards = [one.selection_reward for one in candidates if one.index >= 0]
    steps = [
        es_step(es_seeds(5, update, 3), rewards[3 * update : 3 * update + 3], 0.5)
        for update in range(4)
    ]
    assert lineage.steps == tuple(steps)
    around = [one.descriptor.lineage_digest for one in candidates if one.index >= 0]
    assert around == [digest for digest in lineage.digests[:4] for _ in range(3)]
    assert [(one.updates, one.reported) for one in experiment.states] == [
        (0, False),
        (2, False),
        (4, True),
    ]
    assert experiment.progress.updates_done == experiment.progress.updates_total == 4
    (model,) = experiment.ensembles
    assert (model.population, model.ensemble_size, list(model.experts)) == (12, 1, [-5])
    assert model.metric == experiment.states[-1].heldout_metric


def test_mezo_reports_the_state_that_is_best_on_development_rows(start_lab, spec, tmp_path):
    url = f"sqlite:///{tmp_path}/lab.db"
    experiment, candidates, lineage = asyncio.run(run(start_lab, url, spec(**MEZO)))

    sides = [one for one in candidates if one.index >= 0]
    assert [one.descriptor.radius for one in sides] == [0.001, -0.001] * 5
    steps = [
        mezo_step(
            step_seed(5, update),
            sides[2 * update].selection_reward,
            sides[2 * update + 1].selection_reward,
            epsilon=0.001,
            rate=0.5,
        )
        for update in range(5)
    ]
    developed = [one for one in experiment.states if one.HasField("development_metric")]
    assert [one.updates for one in developed] == [0, 2, 4, 5]
    best = max(
        developed, key=lambda one: (one.development_metric, one.development_reward, -one.updates)
    )
    assert [one for one in experiment.states if one.reported] == [best]
    assert lineage.steps == tuple(steps[: best.updates])
    assert experiment.ensembles[0].metric == best.heldout_metric
    assert experiment.provenance.development_rows == 4


def test_a_run_goes_on_where_its_aggregator_ended(start_lab, spec, tmp_path):
    message = spec(**ES)
    *_, expected = asyncio.run(run(start_lab, f"sqlite:///{tmp_path}/whole.db", message))

    async def scenario():
        url = f"sqlite:///{tmp_path}/broken.db"
        async with start_lab(url) as lab:
            created = await lab.create(message)
            worker = sensitive(lab.worker())
            for _ in range(6):  # the base, one update and two candidates of the next
                await worker.report(await worker.claim_next())
            assert (await lab.get(created.id)).progress.updates_done == 1
        async with start_lab(url, broker_url="memory://again") as lab:
            async with worked(lab):
                await lab.finish(created.id)
            return await lineage_of(lab, created.id)

    assert asyncio.run(scenario()) == expected


def test_what_was_finished_before_a_cancel_is_not_done_again(start_lab, spec, tmp_path):
    message = spec(**ES)
    *_, expected = asyncio.run(run(start_lab, f"sqlite:///{tmp_path}/whole.db", message))

    async def scenario():
        async with start_lab() as lab:
            first = await lab.create(message, "first")
            worker = sensitive(lab.worker())
            for _ in range(8):
                await worker.report(await worker.claim_next())
            await lab.cancel(first.id)
            second = await lab.create(message, "second")
            worker = sensitive(lab.worker())
            async with lab.working(worker):
                await lab.finish(second.id)
            # 12 candidates, the base on both splits, two states on held-out rows
            assert len(worker.reports) == 16 - 8
            return await lineage_of(lab, second.id)

    assert asyncio.run(scenario()) == expected


def test_each_update_looks_at_what_was_finished_of_itself_only(start_lab, spec):
    loaded: list[int] = []

    async def scenario():
        async with start_lab() as lab:
            first = await lab.create(spec(**ES), "first")
            worker = sensitive(lab.worker())
            for _ in range(8):
                await worker.report(await worker.claim_next())
            await lab.cancel(first.id)

            def note(found, _context):
                if found.experiment_id == first.id:
                    loaded.append(found.index)

            event.listen(Candidate, "load", note)
            try:
                second = await lab.create(spec(**ES), "second")
                async with worked(lab):
                    await lab.finish(second.id)
            finally:
                event.remove(Candidate, "load", note)

    asyncio.run(scenario())
    # The state that is monitored is between those that answer the held-out rows in the end.
    assert sorted(loaded) == [-3, -3, -1, *range(6)]


def test_a_look_at_a_long_run_costs_no_more_than_at_a_short_one(start_lab, spec):
    """What is over is read once; the states that are listed come in one query."""

    async def scenario(updates):
        settings = {"updates": updates, "evaluate_every": 1, "development": DEVELOPMENT}
        message = spec(**{**MEZO, "iterative": {"rate": 0.5, **settings}})
        async with start_lab() as lab:
            created = await lab.create(message, f"{updates} updates")
            async with worked(lab):
                await lab.finish(created.id)
            first = await lab.get(created.id)
            store = lab.aggregator._stores.experiments
            with statements() as made:
                store.get(created.id)
            assert await lab.get(created.id) == first
            anew = ExperimentStore(store._database).get(created.id)
            assert experiment_message(anew) == first
            assert len(first.states) == updates + 1
            return made

    short, long = (asyncio.run(scenario(updates)) for updates in (3, 9))
    assert len(long) == len(short) <= 12


@contextmanager
def statements():
    """Note the statements of this thread as long as the context lasts."""
    made, thread = [], threading.get_ident()

    def note(_connection, _cursor, statement, *_):
        if threading.get_ident() == thread:
            made.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield made
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@pytest.mark.parametrize(
    ("settings", "allowed", "state", "said"),
    [
        (ES, 1, SUCCEEDED, ""),
        (ES, 0, FAILED, "1 candidates failed"),
        (MEZO, 1, FAILED, "a side of the step could not be evaluated"),
    ],
)
def test_a_failed_candidate_has_no_part_in_a_step(start_lab, spec, settings, allowed, state, said):
    message = spec(**settings, failures={"max_failed_candidates": allowed})

    async def scenario():
        async with start_lab() as lab:
            created = await lab.create(message)
            worker = sensitive(lab.worker())
            while (job := await worker.claim_next()).candidate != 0:
                await worker.report(job)
            await lab.jobs.FailJob(
                evaluation_pb2.FailJobRequest(
                    lease=job.lease,
                    kind=evaluation_pb2.FAILURE_KIND_CANDIDATE,
                    reason="not finite",
                )
            )
            async with worked(lab):
                await lab.finish(created.id)
            experiment = await lab.get(created.id)
            assert experiment.state == state
            assert said in experiment.error
            return await lineage_of(lab, created.id)

    lineage = asyncio.run(scenario())
    if state == SUCCEEDED:
        assert lineage.steps[0].scores[0] is None
        assert lineage.steps[0].coefficients[0] == 0.0


@pytest.mark.parametrize(("allowed", "state"), [(2, SUCCEEDED), (1, FAILED)])
def test_the_failed_candidates_of_all_updates_count_together(start_lab, spec, allowed, state):
    message = spec(**ES, failures={"max_failed_candidates": allowed})
    unlucky = {1, 5}

    async def scenario():
        async with start_lab() as lab:
            created = await lab.create(message)
            worker = sensitive(lab.worker())
            while unlucky:
                job = await worker.claim_next()
                if job.candidate not in unlucky or job.split != evaluation_pb2.SPLIT_SELECTION:
                    await worker.report(job)
                    continue
                unlucky.remove(job.candidate)
                kind = evaluation_pb2.FAILURE_KIND_CANDIDATE
                failed = evaluation_pb2.FailJobRequest(lease=job.lease, kind=kind, reason="NaN")
                await lab.jobs.FailJob(failed)
            async with worked(lab):
                await lab.finish(created.id)
            return await lab.get(created.id)

    experiment = asyncio.run(scenario())
    assert experiment.state == state
    assert ("2 candidates failed, 1 may" in experiment.error) is (state == FAILED)


@pytest.fixture
def generator(tmp_path):
    """A generator of the bundled model, in a file."""
    layout = physical_layout(resolve_checkpoint("tiny-thicket").config)
    path = tmp_path / "generator.json"
    path.write_text(Generator(layout, seed=1).to_json({}))
    return path


def zo_spec(spec, generator):
    chosen = {**MEZO, "method": "zo_finetuner"}
    return spec(**chosen, iterative__updates=2, iterative__generator=str(generator))


def test_both_sides_of_a_step_have_the_amplitudes_that_were_proposed(start_lab, spec, generator):
    async def scenario():
        async with start_lab() as lab:
            created = await lab.create(zo_spec(spec, generator))
            worker = sensitive(lab.worker())
            plain = worker.parts

            async def parts(job):
                found = await plain(job)
                found[0].header.normaliser = 4.0 if job.generator_digest else 0.0
                return found

            worker.parts = parts
            async with lab.working(worker):
                await lab.finish(created.id)
            experiment = await lab.get(created.id)
            assert experiment.state == SUCCEEDED, experiment.error
            lineage = await lineage_of(lab, created.id)
            return experiment, await lab.candidates(created.id), lineage

    experiment, candidates, lineage = asyncio.run(scenario())
    text = generator.read_text()
    assert experiment.provenance.generator_digest == hashlib.sha256(text.encode()).hexdigest()
    sides = [one for one in candidates if one.index >= 0]
    for update in range(2):
        plus, minus = sides[2 * update : 2 * update + 2]
        proposed = plus.descriptor.coefficients
        assert list(minus.descriptor.coefficients) == [-one for one in proposed]
        step = zo_step(
            step_seed(5, update),
            plus.selection_reward,
            minus.selection_reward,
            raw=[one / (0.001 * 4.0) for one in proposed],
            scale=4.0,
            epsilon=0.001,
            rate=0.5,
        )
        if update < len(lineage.steps):
            assert lineage.steps[update] == step
    assert lineage.steps or experiment.states[0].reported


def test_a_proposal_without_its_normaliser_is_refused(start_lab, spec, generator):
    async def scenario():
        async with start_lab() as lab:
            await lab.create(zo_spec(spec, generator))
            worker = sensitive(lab.worker())
            while not (job := await worker.claim_next()).generator_digest:
                await worker.report(job)
            async with lab.raises(InvalidInputError, "header.normaliser"):
                await worker.report(job)

    asyncio.run(scenario())


def test_a_step_that_cannot_be_computed_ends_the_run(start_lab, spec, generator):
    async def scenario():
        async with start_lab() as lab:
            created = await lab.create(zo_spec(spec, generator))
            worker = sensitive(lab.worker())
            plain = worker.parts

            async def parts(job):
                found = await plain(job)
                found[0].header.normaliser = 5e-324 if job.generator_digest else 0.0
                return found

            worker.parts = parts
            async with lab.working(worker):
                await lab.finish(created.id)
            experiment = await lab.get(created.id)
            assert experiment.state == FAILED
            assert "cannot be computed" in experiment.error

    asyncio.run(scenario())


def test_states_are_known_by_their_digests_alone(start_lab, spec):
    async def scenario():
        async with start_lab() as lab:
            created = await lab.create(spec(**ES))
            plain = await lab.create(spec(), "plain")
            async with worked(lab):
                await lab.finish(created.id)
            whole = await lineage_of(lab, created.id)
            request = evaluation_pb2.FetchLineageRequest(
                experiment_id=created.id, digest=whole.digests[3], after=1
            )
            parts = [part async for part in lab.jobs.FetchLineage(request)]
            assert Lineage.from_json(parts[0].origin_json) == whole.until(0)
            sent = [step for part in parts for step in part.steps_json]
            assert sent == [step.to_json() for step in whole.steps[1:3]]
            request.digest = "f" * 64
            async with lab.raises(NotFoundError, "digest"):
                await anext(aiter(lab.jobs.FetchLineage(request)))
            async with lab.raises(NotFoundError, "digest"):
                await lab.artifact(plain.id, LINEAGE)

    asyncio.run(scenario())


def test_what_does_not_fit_is_refused_before_anything_is_stored(start_lab, spec, generator):
    same = {"source": "bundled:word-problems-selection", "limit": 5}
    generator.write_text(generator.read_text().replace("model.norm.weight", "model.other"))

    async def scenario():
        async with start_lab() as lab:
            async with lab.raises(InvalidInputError, "iterative.development"):
                await lab.create(spec(**MEZO, iterative__development=same))
            async with lab.raises(InvalidInputError, "iterative.generator"):
                await lab.create(zo_spec(spec, generator))
            assert not (await lab.list()).experiments

    asyncio.run(scenario())
