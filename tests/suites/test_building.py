"""Every kind of table from made-up results, against figures worked out by hand."""

from math import isnan
from statistics import fmean, stdev
from typing import Any

import pytest

from modnorm.errors import InvalidInputError
from modnorm.suites import load_suite
from modnorm.suites.loading import setting
from modnorm.suites.rendering import Printed, to_markdown
from tests.faults import error_at

METRIC: dict[str, Any] = {
    "kind": "metric",
    "title": "Accuracy",
    "rows": ["method", "N"],
    "columns": ["task"],
}
PAIR: dict[str, Any] = {
    "label": "more",
    "of": {"method": "MN", "task": "more"},
    "against": {"method": "RandOpt", "task": "more"},
}
SIZES = {name: {**PAIR[name], "N": 4, "K": 2} for name in ("of", "against")}
Finished = dict[str, tuple[dict[tuple[int, int], float], dict[str, Any]]]
REWARDS = (0.2, 0.3, 0.4, 0.5)


@pytest.fixture
def build(load, finish, tables):
    """Fill the table of a suite from results; `finished` gives the arguments of each cell."""

    def make(table, finished, **changes):
        loaded = load(tables=[table], **changes)
        cells = {cell.id: cell for cell in loaded.cells}
        for name, (metrics, more) in finished.items():
            finish(cells[name], metrics=metrics, **{"rewards": REWARDS, **more})
        return tables(loaded)[0]

    return make


def test_metrics_stand_by_axes_with_mean_and_sample_sd(build):
    finished: Finished = {
        "mn_more_42": ({(4, 2): 0.5}, {}),
        "mn_more_43": ({(4, 2): 0.6}, {}),
        "randopt_more_42": ({(4, 2): 0.4, (2, 2): 0.3}, {}),
    }
    paper = {"source": "p", "values": {"MN": {4: {"more": [54, 7], "puzzles": 50}}}}
    table = build({**METRIC, "at": {"K": 2}, "paper": paper}, finished)
    rows = table.by_labels
    assert list(rows) == [("RandOpt", "2"), ("RandOpt", "4"), ("MN", "2"), ("MN", "4")]
    assert table.columns == ("puzzles", "more")
    full = rows["MN", "4"]["more"]
    assert (full.mean, full.sd) == pytest.approx((55.0, stdev([50, 60])))
    assert (full.paper, full.complete_mean) == (Printed(54.0, 7.0), full.mean)
    lacking = rows["MN", "4"]["puzzles"]
    assert (lacking.paper, lacking.mean) == (Printed(50.0, None), None)
    part = rows["RandOpt", "2"]["more"]
    assert (part.by_seed, part.seeds) == ({42: 30.0}, 2)
    assert part.sd is None
    assert isnan(part.complete_mean)
    assert table.missing == 6


def test_a_table_that_does_not_separate_cells_is_refused(build):
    with error_at("tables.0", "several cells share a place"):
        build(METRIC, {})


def test_orders_are_compared_with_the_papers(build):
    contrast = {"axis": "method", "of": "MN", "against": ["RandOpt"]}
    paper = {
        "source": "p",
        "values": {"MN": {"puzzles": 9, "more": 2}, "RandOpt": {"puzzles": 1, "more": 2}},
    }
    finished: Finished = {
        f"{method}_{task}_{seed}": ({(4, 2): value}, {})
        for seed in (42, 43)
        for task, ours in (("puzzles", (0.5, 0.4)), ("more", (0.5, 0.4)))
        for method, value in zip(("mn", "randopt"), ours, strict=True)
    }
    spec = {**METRIC, "rows": ["method"], "at": {"N": 4, "K": 2}}
    table = build({**spec, "contrast": contrast, "paper": paper}, finished)
    (note,) = table.notes
    assert note.startswith("MN above RandOpt: 2 of 2 places; in the paper 1 of 2, 1 tied; ")
    assert note.endswith("another order than the paper's: more")


def test_reductions_are_counted_costs_over_that_of_the_reference(build):
    finished: Finished = {
        "mn_more_42": ({(4, 2): 0.5}, {}),
        "mn_puzzles_42": ({(4, 2): 0.5}, {}),
        "randopt_more_42": ({(4, 2): 0.5}, {}),
    }
    spec = {**METRIC, "rows": ["task", "method", "N", "K"], "columns": []}
    spec["reduction"] = {"method": "RandOpt", "N": 4, "K": 2}
    printed = {"more": {"MN": {2: {1: {"metric (%)": 5, "Eval. red.": 2.5}}}}}
    table = build({**spec, "paper": {"source": "p", "values": printed}}, finished)
    found = table.by_labels
    assert table.columns == ("metric (%)", "Eval. red.")
    # 4 candidates on 10 rows and 2 experts on 20, over 2 candidates and 1 expert.
    assert found["more", "MN", "2", "1"]["Eval. red."].by_seed == {42: 80 / 40}
    assert found["more", "MN", "2", "1"]["Eval. red."].paper == Printed(2.5, None)
    assert found["more", "RandOpt", "4", "2"]["Eval. red."].by_seed == {42: 1.0}
    assert found["puzzles", "MN", "4", "2"]["Eval. red."].by_seed == {}


def test_differences_are_paired_by_seed(build):
    finished: Finished = {
        "mn_more_42": ({(2, 1): 0.5}, {}),
        "mn_more_43": ({(2, 1): 0.6}, {}),
        "randopt_more_42": ({(4, 1): 0.45}, {}),
        "randopt_more_43": ({(4, 1): 0.75}, {}),
    }
    pair = {"label": "x", "of": {**PAIR["of"], "N": 2}, "against": {**PAIR["against"], "N": 4}}
    spec = {"kind": "difference", "title": "d", "ensemble_sizes": [1], "compare": [pair]}
    found = build(spec, finished).by_labels["1",]["x"]
    assert found.by_seed == pytest.approx({42: 5.0, 43: -15.0})


def test_densities_count_accuracy_and_survival_counts_rewards(build):
    finished: Finished = {"mn_more_42": ({}, {"rewards": (0.1, 0.24, 0.3, 0.5)})}
    for kind, expected in (("density", (75.0, 50.0, 25.0)), ("survival", (75.0, 50.0, 25.0))):
        spec = {"kind": kind, "title": "d", "rows": ["method", "task"], "thresholds": [0, 10, 30]}
        figures = build(spec, finished).by_labels["MN", "more"]
        assert tuple(figure.mean for figure in figures.values()) == pytest.approx(expected)


def test_tails_give_required_populations_and_cutoffs(build):
    finished: Finished = {
        "mn_more_42": ({}, {"rewards": (0.3, 0.3, 0.3, 0.3)}),
        "randopt_more_42": ({}, {"rewards": (0.3, 0.3, 0.1, 0.1)}),
    }
    spec = {
        "kind": "tail",
        "title": "t",
        "thresholds": [5, 20],
        "hits": 1,
        "probability": 0.9,
        "compare": [{**PAIR, "of": {**PAIR["of"], "N": 2}}],
        "paper": {"source": "p", "values": {"more": {"cutoff": {"of": 9.5, "against": 8}}}},
    }
    table = build(spec, finished)
    near, far = table.by_labels["more", "5"], table.by_labels["more", "20"]
    assert near["p of, %"].mean == 100.0
    assert near["p against, %"].mean == 50.0
    assert near["N_req ratio"].by_seed == {42: 4.0}  # 1 - 0.5 ** 4 is the first above 0.9
    assert far["N_req ratio"].by_seed == {}
    (cutoffs,) = table.beside
    assert cutoffs.title == "Gain at which the top 1 of the first N begin"
    ((labels, figures),) = cutoffs.by_labels.items()
    assert labels == ("more", "of", "2")  # the other names no N
    assert figures["points"].by_seed == pytest.approx({42: 10.0})
    assert (figures["points"].seeds, figures["points"].paper) == (2, Printed(9.5, None))


def test_support_is_decomposed_by_seed_and_on_average(build):
    finished: Finished = {
        "mn_more_42": ({}, {"right": [2, 2, 2, 0]}),
        "randopt_more_42": ({}, {"right": [2, 0, 0, 0]}),
    }
    spec = {"kind": "support", "title": "s", "compare": [{"label": "x", **SIZES}]}
    rows = build(spec, finished).by_labels
    assert list(rows) == [("x", "42"), ("x", "43"), ("x", "mean")]
    assert rows["x", "42"]["Support redistribution"].mean == pytest.approx(50.0)
    assert rows["x", "42"]["Conditional voting"].mean == pytest.approx(0.0)
    assert rows["x", "43"]["Total"].mean is None
    assert rows["x", "mean"]["Total"].by_seed == pytest.approx({42: 50.0})


def test_support_has_a_table_of_rows_by_right_experts(build):
    right = {
        "mn_more_42": [0, 1, 1, 2, 2, 3, 3, 3, 4, 4],
        "randopt_more_42": [0, 0, 0, 0, 1, 2, 3, 4, 4, 4],
        "mn_more_43": [4] * 10,
        "randopt_more_43": [0] * 10,
    }
    size_4 = {name: {**SIZES[name], "K": 4} for name in SIZES}
    printed = {"x": {"m": {"2-3": {"p of, %": [40.5, 2], "p against, %": 30}}}}
    table = build(
        {
            "kind": "support",
            "title": "s",
            "compare": [{"label": "x", **size_4}],
            "paper": {"source": "p", "values": printed},
        },
        {cell: ({}, {"right": counts}) for cell, counts in right.items()},
        base={"model": "tiny-thicket", "population": {"size": 4, "ensemble_sizes": [4]}},
    )
    (shares,) = table.beside
    rows = shares.by_labels
    bins = {"0": (0,), "1": (1,), "2": (2,), "3": (3,), "4": (4,), "2-3": (2, 3)}
    assert (shares.headings, list(rows)) == (("", "m"), [("x", m) for m in bins])
    for m, within in bins.items():
        for column, method in (("p of, %", "mn"), ("p against, %", "randopt")):
            literal = {
                seed: 10.0 * sum(count in within for count in right[f"{method}_more_{seed}"])
                for seed in (42, 43)
            }
            assert rows["x", m][column].by_seed == pytest.approx(literal)
    assert rows["x", "2-3"]["p of, %"].paper == Printed(40.5, 2.0)
    assert shares.paper == "p"


def test_times_are_minutes_and_speedups_are_ratios_by_seed(build):
    finished: Finished = {
        f"{method}_more_{seed}": ({}, {"seconds": seconds})
        for method, both in (("mn", (60, 120)), ("randopt", (180, 240)))
        for seed, seconds in zip((42, 43), both, strict=True)
    }
    spec = {"kind": "wall_clock", "title": "w", "rows": ["task", "method"]}
    found = build(spec, finished).by_labels["more", "MN"]
    assert found["Search"].by_seed == {42: 5.0, 43: 10.0}
    assert found["Total"].by_seed == {42: 6.0, 43: 12.0}
    speedup = {"kind": "speedup", "title": "s", "compare": [PAIR]}
    ratio = build(speedup, finished).by_labels["more",]["Search"]
    assert (ratio.mean, ratio.sd) == pytest.approx((fmean([3, 2]), stdev([3, 2])))


def test_results_of_other_settings_are_skipped_and_named(build, load):
    spec = load().cells[-1].spec.model_dump(mode="json")
    spec["method"]["radius"] = 0.7
    table = build({**METRIC, "at": {"K": 2}}, {"mn_more_43": ({(4, 2): 0.6}, {"spec": spec})})
    assert table.by_labels["MN", "4"]["more"].mean is None
    assert table.notes == ("left out: mn_more_43 holds a run of other settings (method.radius)",)


@pytest.mark.parametrize("values", ["x", [1, 2, 3], [True, 1]])
def test_published_figures_are_numbers(build, values):
    paper = {"source": "p", "values": {"MN": {4: {"more": values}}}}
    with pytest.raises(InvalidInputError, match="neither a mean nor"):
        build({**METRIC, "at": {"K": 2}, "paper": paper}, {})


def test_tables_stay_empty_in_a_trial_with_other_sizes(write, tables):
    compared = {"label": "x", **SIZES}
    specs = [
        {**METRIC, "at": {"N": 4, "K": 2}},
        {"kind": "difference", "title": "d", "ensemble_sizes": [2], "compare": [compared]},
        {"kind": "support", "title": "s", "compare": [compared]},
    ]
    sizes = setting("population={size: 3, prefixes: [3], ensemble_sizes: [3]}")
    built = tables(load_suite(write(tables=specs), [sizes]))
    assert [table.rows for table in built] == [()] * 3
    assert [to_markdown(table).count("|\n") for table in built] == [2, 2, 4]


def test_a_pick_that_points_to_no_or_several_cells_is_refused(build):
    vague = {"label": "x", "of": {"method": "MN"}, "against": {"method": "RandOpt"}}
    with pytest.raises(InvalidInputError, match="several cells of a seed"):
        build({"kind": "speedup", "title": "s", "compare": [vague]}, {})
    others = [{"where": {"task": "puzzles"}, "set": {"population": {"prefixes": [3, 4]}}}]
    absent = {"label": "x", "of": {**PAIR["of"], "N": 3}, "against": PAIR["against"]}
    sizes = {"kind": "difference", "title": "s", "ensemble_sizes": [1], "compare": [absent]}
    with pytest.raises(InvalidInputError, match="selects no ensemble"):
        build(sizes, {}, overrides=others)
    absent = {"label": "x", "of": SIZES["of"], "against": {**SIZES["against"], "N": 3}}
    with pytest.raises(InvalidInputError, match="selects no ensemble"):
        build({"kind": "support", "title": "s", "compare": [absent]}, {}, overrides=others)
