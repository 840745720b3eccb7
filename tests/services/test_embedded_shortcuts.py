"""Whole runs of the bundled model, one with settled votes and one with full statistics."""

from modnorm.cli.run import follow_to_end, submit_here
from modnorm.client.client import Client
from modnorm.services.embedded import start
from verification.fuzz.stored import small_spec
from verification.labs.bundled_tasks import bundled_task


def spec(statistics):
    sizes = {"size": 8, "prefixes": [5, 8], "ensemble_sizes": [1, 3]}
    return small_spec(
        name=statistics,
        reuse=False,
        task=bundled_task("gsm8k", selection=8, heldout=6, max_tokens=24),
        method={"name": "randopt", "sigma": 0.02},
        population={**sizes, "statistics": statistics},
    )


def outcomes(run):
    return [
        (each.population, each.ensemble_size, list(each.experts), each.correct, each.rows)
        for each in run.ensembles
    ]


def test_both_end_in_the_same_experts_winners_and_accuracies(tmp_path):
    with (
        start(tmp_path / "state", cache=tmp_path / "cache") as lab,
        Client(lab.target, credentials=lab.credentials) as client,
    ):
        full, short = (
            follow_to_end(client, submit_here(client, spec(statistics)))
            for statistics in ("full", "experts")
        )
        assert outcomes(short) == outcomes(full)
        assert len(full.ensembles) == 4
        assert short.base == full.base
        pairs = [list(client.run(each.id).votes()) for each in (full, short)]
    assert [(vote.answer, vote.correct) for vote in pairs[0]] == [
        (vote.answer, vote.correct) for vote in pairs[1]
    ]
    assert [any(vote.skipped for vote in votes) for votes in pairs] == [False, True]
