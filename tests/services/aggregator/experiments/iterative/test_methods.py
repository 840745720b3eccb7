"""Iterative runs from their creation to the state that they report."""

from modnorm.baselines.updates import es_seeds, es_step, mezo_step, step_seed


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
