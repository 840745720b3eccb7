from dataclasses import replace

import pytest

from modnorm.analysis.comparison import compare_runs, describe_pairs, pair_ensembles
from modnorm.analysis.export import write_run
from modnorm.analysis.run import load_run


@pytest.fixture
def written(tmp_path):
    def write(name, run):
        write_run(tmp_path / name, run)
        return load_run(tmp_path / name)

    return write


@pytest.fixture(scope="module")
def unchanged(make_run, tmp_path_factory):
    """Results of the run that others differ from."""
    directory = tmp_path_factory.mktemp("runs") / "a"
    write_run(directory, make_run())
    return load_run(directory)


def test_runs_stand_side_by_side(make_run, written):
    first = written("mn", make_run())
    second = written("randopt", make_run(method="randopt", prefixes=(24,), sizes=(1, 5)))
    rows = compare_runs([first, second])
    assert [row["run"] for row in rows] == ["mn", "randopt"]
    assert [row["method"] for row in rows] == ["modular_norm", "randopt"]
    assert [row["population"] for row in rows] == [48, 24]
    assert [row["differs"] for row in rows] == [[], []]
    assert list(rows[0]["ensembles"]) == [1, 5, 10]
    assert list(rows[1]["ensembles"]) == [1, 5]
    for row in rows:
        assert row["base"] == 0.2
        assert row["rank_1"] == row["ensembles"][1]
        assert row["rank_1"] is not None
        assert "best_expert" not in row


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"provenance": {"scorer": "countdown-v1"}}, "scorer"),
        ({"provenance": {"heldout_digest": "cd" * 32}}, "held-out rows"),
        ({"provenance": {"prompts_digest": "cd" * 32}}, "prompts"),
        ({"provenance": {"selection_digest": "cd" * 32}}, "selection rows"),
        ({"provenance": {"model_digest": "cd" * 32}}, "model"),
        ({"spec": {"task": {"name": "gsm8k"}}}, "task"),
        ({"spec": {"population": {"noise": "randopt-reseed-v1"}}}, "noise"),
        ({"spec": {"engine": {"numerics": "batch_invariant"}}}, "numerics"),
    ],
)
def test_runs_that_cannot_be_compared_are_flagged(run, unchanged, written, change, name):
    other = replace(
        run,
        spec={**run.spec, **change.get("spec", {})},
        provenance={**run.provenance, **change.get("provenance", {})},
    )
    rows = compare_runs([unchanged, written("b", other)])
    assert rows[0]["differs"] == []
    assert name in rows[1]["differs"]


def test_prompts_of_other_rows_are_not_a_second_difference(run, unchanged, written):
    changed = {"heldout_digest": "cd" * 32, "prompts_digest": "cd" * 32}
    other = replace(run, provenance={**run.provenance, **changed})
    rows = compare_runs([unchanged, written("b", other)])
    assert rows[1]["differs"] == ["held-out rows"]


def test_profiles_differ_only_where_both_runs_use_one(run, written):
    def using(profile):
        used = replace(run, provenance={**run.provenance, "profile_digest": profile})
        return written(profile or "none", used)

    one, other, none = using("ab" * 32), using("cd" * 32), using("")
    assert [row["differs"] for row in compare_runs([one, one, other, none])] == [
        [], [], ["profile"], []
    ]  # fmt: skip
    assert [row["differs"] for row in compare_runs([none, one, other])] == [[], [], []]


@pytest.mark.parametrize(
    ("named", "used", "differs"),
    [(1024, 1024, []), (512, 512, ["completion cap"]), (None, 512, ["completion cap"])],
)
def test_a_cap_that_is_the_tasks_own_is_the_same_as_none(run, written, named, used, differs):
    """The task itself may have another cap here, or not be installed."""

    def capped(named, used):
        task = {**run.spec["task"], "name": "of another machine", "max_tokens": named}
        provenance = {**run.provenance, "max_tokens": used}
        changed = replace(run, spec={**run.spec, "task": task}, provenance=provenance)
        return written(f"{named} {used}", changed)

    rows = compare_runs([capped(None, 1024), capped(named, used)])
    assert [row["differs"] for row in rows] == [[], differs]


def _verdicts(both, only_first, only_other, neither):
    first = [True] * (both + only_first) + [False] * (only_other + neither)
    other = [True] * both + [False] * only_first + [True] * only_other + [False] * neither
    return first, other


def test_rows_are_paired_at_every_shared_place():
    first, other = _verdicts(40, 17, 8, 35)
    pairs = pair_ensembles(
        {(10, 1): first, (20, 5): first, (20, 1): other}, {(20, 5): other, (20, 1): other}
    )
    assert [(pair["population"], pair["ensemble_size"]) for pair in pairs] == [(20, 1), (20, 5)]
    same, pair = pairs
    assert (same["difference"], same["p_value"], same["separated"]) == (0, 1, False)
    assert (pair["rows"], pair["only_first"], pair["only_other"]) == (100, 17, 8)
    assert pair["rows_only_first"] == list(range(40, 57))
    assert pair["rows_only_other"] == list(range(57, 65))
    assert (pair["accuracy"], pair["other_accuracy"]) == (0.57, 0.48)
    assert pair["difference"] == pytest.approx(0.09)
    assert pair["p_value"] == pytest.approx(0.10775, abs=1e-5)
    interval = pair["difference_interval"]
    assert interval is not None
    lower, upper = interval
    assert lower <= 0 < upper
    assert lower == pytest.approx(0.09 - 1.96 * (0.2419 / 100) ** 0.5, abs=0.02)
    assert not pair["separated"]


def test_words_say_whether_the_data_separates_the_runs():
    first, other = _verdicts(40, 17, 8, 35)
    clear, worse = _verdicts(40, 25, 5, 30)
    places = {(20, 1): first, (20, 5): clear}, {(20, 1): other, (20, 5): worse}
    assert describe_pairs(pair_ensembles(*places), "mn", "iso") == (
        "At N=20 K=5 the data separates mn and iso (+20.0 points); it separates them at 1 of 2 "
        "(N, K), by McNemar's exact test and Holm's method at 5 %."
    )
    near = pair_ensembles({(20, 5): first}, {(20, 5): other})
    assert "does not separate mn and iso (+9.0 points)" in describe_pairs(near, "mn", "iso")
    assert describe_pairs([], "a", "b") == "a and b share no (N, K), so no rows are paired."


def test_several_tests_are_adjusted_together():
    first, other = _verdicts(40, 17, 6, 37)
    alone = pair_ensembles({(20, 5): first}, {(20, 5): other})
    assert alone[0]["separated"]
    assert alone[0]["adjusted_p_value"] == alone[0]["p_value"] == pytest.approx(0.0347, abs=1e-4)
    places = [(20, 1), (20, 5), (20, 10)]
    pairs = pair_ensembles(dict.fromkeys(places, first), dict.fromkeys(places, other))
    assert [pair["adjusted_p_value"] for pair in pairs] == [3 * alone[0]["p_value"]] * 3
    assert not any(pair["separated"] for pair in pairs)


def test_a_metric_that_is_no_row_accuracy_is_named_beside_the_test():
    # Balanced accuracy of 3 rows of one class and 1 of another; signs differ.
    first, other = [True, True, False, False], [False, False, False, True]
    metrics = {(4, 1): 1 / 3}, {(4, 1): 1 / 2}
    (pair,) = pair_ensembles({(4, 1): first}, {(4, 1): other}, metrics)
    assert (pair["difference"], pair["metric"], pair["other_metric"]) == (0.25, 1 / 3, 1 / 2)
    text = describe_pairs([pair], "a", "b")
    assert "33.3 % of a and 50.0 % of b" in text
