"""Whole runs of the bundled model with early stop and with full statistics."""

from contextlib import closing

import pytest

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


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    home = tmp_path_factory.mktemp("lab")
    with (
        start(home / "state", cache=home / "cache") as lab,
        closing(Client(lab.target, credentials=lab.credentials)) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def full(client):
    return follow_to_end(client, submit_here(client, spec("full")))


@pytest.fixture(scope="module")
def short(client):
    return follow_to_end(client, submit_here(client, spec("experts")))


def outcomes(run):
    return [
        (each.population, each.ensemble_size, list(each.experts), each.correct, each.rows)
        for each in run.ensembles
    ]


def test_both_end_in_the_same_experts_winners_and_accuracies(client, full, short):
    assert outcomes(short) == outcomes(full)
    assert len(full.ensembles) == 4
    assert short.base == full.base
    pairs = [list(client.run(each.id).votes()) for each in (full, short)]
    assert [(vote.answer, vote.correct) for vote in pairs[0]] == [
        (vote.answer, vote.correct) for vote in pairs[1]
    ]
    assert not any(vote.skipped for vote in pairs[0])


def test_complete_scores_are_equal_and_the_others_lie_in_their_intervals(client, full, short):
    whole = list(client.run(full.id).candidates)
    stopped = 0
    for each in client.run(short.id).candidates:
        reward = whole[each.index].selection_reward
        if each.state == "stopped":
            stopped += 1
            assert each.reward_lower <= reward <= each.reward_upper
            assert each.selection_answers < 8
            assert each.selection_reward is None
        else:
            assert each.selection_reward == reward
    assert short.progress.candidates_stopped == stopped > 0
    assert full.progress.candidates_stopped == 0


def test_experts_answer_the_rows_that_are_open(client, short):
    left_out = 0
    run = client.run(short.id)
    experts = {expert for ensemble in run.ensembles for expert in ensemble.experts}
    for each in run.candidates:
        if each.index in experts:
            rows = [answer.row for answer in run.answers(each.index, "heldout")]
            assert rows == sorted(set(rows) & set(range(6)))
            assert each.heldout_answers == len(rows)
            assert (each.heldout_metric is not None) is (len(rows) == 6)
            left_out += 6 - len(rows)
    assert left_out > 0
