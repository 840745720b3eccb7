"""Iterative runs from their creation to the state that they report, resumed ones among them."""

from modnorm.baselines.updates import es_seeds, es_step, mezo_step, step_seed
from modnorm.errors import NotFoundError
from modnorm.perturbation.lineage import Lineage
from modnorm.v1 import evaluation_pb2


async def test_es_is_the_same_with_one_worker_and_with_three(
    whole_run, iterative_spec, postgres_url, tmp_path
):
    """On databases of either kind, too."""
    message = iterative_spec("es")
    sqlite_url = f"sqlite:///{tmp_path}/one.db"
    experiment, candidates, lineage = await whole_run(sqlite_url, message)
    again, _, same = await whole_run(postgres_url, message, workers=3)

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
    around = [one.descriptor.lineage for one in candidates if one.index >= 0]
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


async def test_mezo_reports_the_state_that_is_best_on_development_rows(
    whole_run, iterative_spec, tmp_path
):
    url = f"sqlite:///{tmp_path}/lab.db"
    experiment, candidates, lineage = await whole_run(url, iterative_spec("mezo"))

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


async def test_a_run_resumes_where_its_aggregator_ended(
    start_lab, whole_run, iterative_spec, sensitive, worked, tmp_path
):
    message = iterative_spec("es")
    *_, expected = await whole_run(f"sqlite:///{tmp_path}/whole.db", message)
    url = f"sqlite:///{tmp_path}/broken.db"
    async with start_lab(url) as lab:
        created = await lab.create(message)
        worker = sensitive(lab.worker())
        for _ in range(6):  # the base, one update and two candidates of the next
            await worker.report(await worker.claim_next())
        assert (await lab.get(created.id)).progress.updates_done == 1
    async with start_lab(url, broker_url="memory://again") as lab, worked(lab):
        await lab.finish(created.id)
        assert await lab.lineage(created.id) == expected


async def test_states_are_identified_by_their_digests(start_lab, iterative_spec, worked):
    async with start_lab() as lab:
        created = await lab.create(iterative_spec("es"))
        async with worked(lab):
            await lab.finish(created.id)
        whole = await lab.lineage(created.id)
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
