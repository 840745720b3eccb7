import itertools
from dataclasses import replace
from statistics import fmean, stdev

import pandas as pd
import pytest

from modnorm.analysis import frames
from modnorm.analysis.analyses import analyze, observed_reduction
from modnorm.analysis.export import write_run
from modnorm.analysis.figures import FORMATS, plan_figures, write_table
from modnorm.analysis.run import load_run
from modnorm.analysis.seeds import choose_reference, over_seeds, paired, required_population
from modnorm.errors import InvalidInputError

PLACE = ("tiny-thicket", "countdown")


def _worse(run, seed):
    """The run with another seed, in which some right votes are wrong."""
    votes = {
        key: [
            replace(vote, correct=vote.correct and row % seed > 0) for row, vote in enumerate(rows)
        ]
        for key, rows in run.votes.items()
    }
    ensembles = [
        replace(each, correct=correct, metric=correct / each.rows)
        for each in run.ensembles
        for correct in [sum(v.correct for v in votes[each.place])]
    ]
    population = {**run.spec["population"], "seed": seed}
    spec = {**run.spec, "population": population}
    return replace(run, votes=votes, ensembles=ensembles, spec=spec)


@pytest.fixture(scope="module")
def runs(make_run, tmp_path_factory):
    """Two methods, seeds 3 and 5; RandOpt has other candidates. No test changes the files."""
    folder, written = tmp_path_factory.mktemp("runs"), {}
    for method, prefixes in (("modular_norm", (12, 24)), ("randopt", (24, 48))):
        for seed in (3, 5):
            run = _worse(make_run(method=method, prefixes=prefixes, sizes=(1, 5, 10)), seed)
            write_run(folder / f"{method}-{seed}", run)
            written[method, seed] = load_run(folder / f"{method}-{seed}"), run
    return written


@pytest.fixture(scope="module")
def tables(runs):
    return analyze([results for results, _ in runs.values()]).tables


def _metric(run, population, size):
    return next(100 * each.metric for each in run.ensembles if each.place == (population, size))


def test_scaling_has_mean_and_sample_sd_over_seeds(runs, tables):
    found = tables["population-scaling"].set_index(["method", "N", "K"])
    assert len(found) == 12
    values = [_metric(runs["randopt", seed][1], 48, 5) for seed in (3, 5)]
    row = found.loc[("randopt", 48, 5)]
    assert row["seeds"] == 2
    assert row["mean"] == pytest.approx(fmean(values))
    assert row["sd"] == pytest.approx(stdev(values))
    assert row["lower"] < min(values)  # the rows add to the spread of the seeds
    assert row["upper"] > max(values)


def test_one_seed_has_the_interval_of_its_rows(runs):
    results, _ = runs["randopt", 3]
    analysis = analyze([results])
    assert analysis.reference is None
    row = analysis.tables["population-scaling"].set_index(["N", "K"]).xs((48, 5))
    entry = next(
        each
        for each in results.document["ensembles"]
        if (each["population"], each["ensemble_size"]) == (48, 5)
    )
    assert [row["lower"], row["upper"]] == pytest.approx([100 * x for x in entry["interval"]])
    assert "budget-differences" not in analysis.tables
    assert "decomposition" not in analysis.tables
    assert plan_figures(analysis).keys() >= {
        "figure2-population-scaling",
        "figure3-reward-survival",
    }


def test_differences_are_paired_by_seed_across_budgets(runs, tables):
    found = tables["budget-differences"].set_index(["N", "reference_N", "K"])
    assert len(found) == 12
    differences = [
        _metric(runs["modular_norm", seed][1], 12, 10) - _metric(runs["randopt", seed][1], 48, 10)
        for seed in (3, 5)
    ]
    row = found.loc[(12, 48, 10)]
    assert (row["method"], row["reference_method"]) == ("modular_norm", "randopt")
    assert row["mean"] == pytest.approx(fmean(differences))
    assert row["sd"] == pytest.approx(stdev(differences))


def test_tails_follow_from_the_rewards(runs, tables):
    _, run = runs["randopt", 3]
    gains = [100 * (c.selection_reward - run.base.selection_reward) for c in run.candidates]
    above = sum(gain >= 2.0 - 1e-9 for gain in gains)
    required = tables["required-populations"].set_index(["method", "seed", "threshold"])
    row = required.loc[("randopt", 3, 2.0)]
    assert row["percent"] == pytest.approx(100 * above / 48)
    assert row["required"] == required_population(above / 48)
    cutoffs = tables["selection-cutoffs"].set_index(["method", "N"])
    tenth = sorted(gains[:24], reverse=True)[9]
    assert cutoffs.loc[("randopt", 24), "mean"] == pytest.approx(tenth)
    ratios = tables["population-ratios"].set_index("threshold")
    ours = required.loc[("modular_norm", 3, 2.0), "required"]
    assert ratios.loc[2.0, "mean"] == pytest.approx(row["required"] / ours)
    curve = tables["reward-survival"]
    assert curve.groupby(["method", "N"])["threshold"].count().eq(241).all()
    assert curve.groupby("method")["mean"].apply(lambda p: p.is_monotonic_decreasing).all()


def test_each_seed_counts_up_to_its_population(runs, make_run, tmp_path):
    """RandOpt has 48 candidates with seed 3 and 24 with seed 5."""
    write_run(tmp_path / "small", _worse(make_run(method="randopt", prefixes=(12, 24)), 5))
    mixed = [runs["randopt", 3][0], load_run(tmp_path / "small")]
    analysis = analyze([*mixed, *(runs["modular_norm", seed][0] for seed in (3, 5))])
    cutoffs = analysis.tables["selection-cutoffs"].set_index(["method", "N"])["seeds"]
    assert cutoffs["randopt"].to_dict() == {12: 2, 24: 2, 48: 1}
    assert cutoffs["modular_norm"].to_dict() == {12: 2, 24: 2}


def test_a_reduction_compares_means_of_equally_many_seeds():
    """RandOpt's 300 candidates have one seed, so that its 100 count."""
    lines = [("randopt", 100, 3, 40.0), ("randopt", 300, 1, 30.0), ("modular_norm", 50, 3, 41.0)]
    scaling = pd.DataFrame(lines, columns=["method", "N", "seeds", "mean"])
    found = observed_reduction(scaling.assign(model="m", task="t", K=25), "randopt")
    assert found[["N", "reference_N", "reduction"]].to_numpy().tolist() == [[50, 100, 2.0]]


def test_support_is_decomposed_exactly(runs, tables):
    terms = tables["decomposition-by-seed"].set_index(["seed", "N", "reference_N", "K"])
    row = terms.loc[(3, 12, 48, 10)]
    difference = _metric(runs["modular_norm", 3][1], 12, 10) - _metric(
        runs["randopt", 3][1], 48, 10
    )
    assert row["total"] == pytest.approx(difference)
    assert row["support"] + row["voting"] == pytest.approx(difference)
    gaps = terms["total"] - terms["support"] - terms["voting"]
    assert gaps.abs().max() < 1e-10
    means = tables["decomposition"].set_index(["term", "N", "reference_N", "K"])
    support = [terms.loc[(seed, 12, 48, 10), "support"] for seed in (3, 5)]
    assert means.loc[("support", 12, 48, 10), "mean"] == pytest.approx(fmean(support))


def test_support_bins_hold_every_row_once(runs, tables):
    bins = tables["support-bins"].set_index(["method", "seed", "N", "K"])
    assert bins.groupby(level=[0, 1, 2, 3])["percent"].sum().tolist() == pytest.approx([100] * 24)
    votes = runs["randopt", 5][1].votes[48, 10]
    one = bins.loc[("randopt", 5, 48, 10)].set_index("bin").loc["2-4", "percent"]
    assert one == pytest.approx(100 * fmean(2 <= vote.correct_support <= 4 for vote in votes))
    share = bins.loc[("randopt", 5, 48, 10)].set_index("bin").loc["2-4", "right_votes"]
    right = fmean(vote.correct for vote in votes if 2 <= vote.correct_support <= 4)
    assert share == pytest.approx(100 * right)


def test_times_are_those_of_the_files(tables):
    times = tables["times"].set_index(["method", "seed"]).loc[("randopt", 5)]
    assert times["device_search"] == 48 * 1.5
    assert times["workers"] == 1


def test_runs_of_one_place_and_seed_are_refused(runs):
    results, _ = runs["randopt", 3]
    with pytest.raises(InvalidInputError, match="the same model, task, method, radius and seed"):
        frames.name_runs([results, results])


def test_a_method_at_several_scales_is_named_with_its_scale(runs, make_run, tmp_path):
    run = make_run(prefixes=(24,))
    spec = {**run.spec, "method": {"name": "modular_norm", "radius": 0.64}}
    write_run(tmp_path / "wide", replace(run, spec=spec))
    names = frames.name_runs([runs["modular_norm", 3][0], load_run(tmp_path / "wide")])
    assert {name["method"] for name in names} == {"modular_norm 0.32", "modular_norm 0.64"}


def test_each_model_is_compared_though_its_methods_have_radii_of_its_own(make_run, tmp_path):
    read = []
    for model, radius in (("a", 0.16), ("b", 0.32)):
        for method in ("modular_norm", "randopt"):
            run, path = make_run(method=method, prefixes=(24,)), tmp_path / f"{model}-{method}"
            own = {"model": {"name": model}, "method": {"name": method, "radius": radius}}
            write_run(path, replace(run, spec={**run.spec, **own}))
            read.append(load_run(path))
    analysis = analyze(read)
    assert analysis.reference == "randopt"
    differences = analysis.tables["budget-differences"]
    assert set(zip(differences["model"], differences["method"], strict=True)) == {
        ("a", "modular_norm"),
        ("b", "modular_norm"),
    }


def test_the_reference_is_named_or_randopt_or_the_first(tables):
    scaling = tables["population-scaling"]
    assert choose_reference(scaling, None) == "randopt"
    assert choose_reference(scaling, "modular_norm") == "modular_norm"
    renamed = scaling.replace({"method": {"randopt": "other"}})
    assert choose_reference(renamed, None) == "modular_norm"
    with pytest.raises(InvalidInputError, match="no run is of the method 'es'"):
        choose_reference(scaling, "es")


def test_methods_are_compared_on_one_model_and_task():
    places = itertools.product("ab", "xy", ("modular_norm", "randopt"), (42,))
    table = pd.DataFrame(places, columns=["model", "task", "method", "seed"])
    pairs = paired(table.assign(metric=range(8)), "randopt")
    assert pairs["reference_metric"].tolist() == (pairs["metric"] + 1).tolist()
    assert len(pairs) == 4


def test_means_keep_the_order_of_their_groups_and_one_without_a_name():
    table = pd.DataFrame({"radius": [None, 2.0, 1.0, 2.0], "metric": [9.0, 1.0, 5.0, 3.0]})
    assert over_seeds(table, ["radius"], "metric")["mean"].tolist() == [9.0, 2.0, 5.0]


def test_a_table_is_written_in_every_format(tmp_path):
    table = pd.DataFrame({"method": ["a_b", "c"], "mean": [1 / 3, None], "N": [25, 300]})
    paths = write_table(tmp_path / "new", "name", table)
    assert [path.name for path in paths] == [f"name.{kind}" for kind in FORMATS]
    csv, parquet, markdown, latex = paths
    pd.testing.assert_frame_equal(pd.read_csv(csv), table)
    pd.testing.assert_frame_equal(pd.read_parquet(parquet), table)
    rows = ["".join(line.split()) for line in markdown.read_text().splitlines()]
    assert rows[2:] == ["|a_b|0.3333|25|", "|c|-|300|"]
    assert r"a\_b&0.3333&25\\" in "".join(latex.read_text().split())
