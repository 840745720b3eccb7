import pytest

from modnorm.analysis.comparison import describe_pairs, pair_ensembles


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
    near = describe_pairs(pair_ensembles({(20, 5): first}, {(20, 5): other}), "mn", "iso")
    assert near.startswith(
        "At N=20 K=5 the data does not separate mn and iso: +9.0 points, 95 % bootstrap interval "
    )
    assert near.endswith(
        "Of 100 rows, 17 are right only in mn and 8 only in iso (exact McNemar p = 0.108)."
    )
    far = describe_pairs(
        pair_ensembles({(20, 1): first, (20, 5): clear}, {(20, 1): other, (20, 5): worse}),
        "mn",
        "iso",
    )
    assert far.startswith("At N=20 K=5 the data separates mn and iso: +20.0 points")
    assert "p < 0.001" in far
    assert far.endswith("The data separates them at 1 of 2 (N, K), by Holm's method at 5 %.")
    assert "no difference" in describe_pairs(
        pair_ensembles({(1, 1): first}, {(1, 1): first}), "a", "b"
    )
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
    assert "p = 0.035, adjusted for 3 tests p = 0.104). " in describe_pairs(pairs, "a", "b")


def test_a_metric_that_is_no_row_accuracy_is_named_beside_the_test():
    # Balanced accuracy of 3 rows of one class and 1 of another; signs differ.
    first, other = [True, True, False, False], [False, False, False, True]
    metrics = {(4, 1): 1 / 3}, {(4, 1): 1 / 2}
    (pair,) = pair_ensembles({(4, 1): first}, {(4, 1): other}, metrics)
    assert (pair["difference"], pair["metric"], pair["other_metric"]) == (0.25, 1 / 3, 1 / 2)
    text = describe_pairs([pair], "a", "b")
    assert "+25.0 points of row accuracy" in text
    assert "33.3 % of a and 50.0 % of b" in text
