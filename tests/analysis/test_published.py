"""The published results of the paper's public code, read and reproduced."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from modnorm.analysis.analyses import budget_differences, observed_reduction
from modnorm.analysis.figures import Bars, Panel, draw_panels, plan_figures
from modnorm.analysis.published import (
    METHOD,
    REFERENCE,
    analyze_published,
    is_published,
    read_summaries,
)
from modnorm.errors import InvalidInputError
from tests.analysis.published_rewards import BASE, REWARDS

EXCERPTS = Path(__file__).parent / "published"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Excerpts of the published files, and one population of `candidate_rewards.csv`."""
    directory = tmp_path / "results"
    shutil.copytree(EXCERPTS, directory)
    rows = [
        (
            3,
            "Qwen/Qwen2.5-1.5B-Instruct",
            "countdown",
            METHOD,
            seed,
            index,
            reward / 1e5,
            BASE / 1e5,
        )
        for seed, rewards in REWARDS.items()
        for index, reward in enumerate(rewards)
    ]
    columns = [
        "figure", "model", "task", "method", "seed", "candidate_index", "train_reward",
        "base_train_reward",
    ]  # fmt: skip
    pd.DataFrame(rows, columns=columns).to_csv(directory / "candidate_rewards.csv", index=False)
    return directory


def test_published_summaries_are_reproduced_to_the_last_digit(results):
    analysis, check = analyze_published(results)
    assert analysis.reference == REFERENCE
    assert (check["reproduced"] == check["values"]).all()
    assert (check["largest_difference"] < 1e-11).all()
    counts = {
        (row.summary, row.column): row.values_
        for row in check.rename(columns={"values": "values_"}).itertuples()
    }
    assert counts == {
        ("overview", "mean"): 4,
        ("overview", "sd"): 4,
        ("population-scaling", "mean"): 18,
        ("population-scaling", "sd"): 18,
        **{("reward-survival", name): 26 for name in ("mean", "sd", "min", "max")},
        ("required-populations", "required"): 72,
        **{("population-ratios", name): 12 for name in ("mean", "sd", "min", "max")},
        ("support-bin-means", "mean"): 10,
        ("support-bin-means", "sd"): 10,
        **{("decomposition", name): 3 for name in ("mean", "sd", "share_of_total")},
    }


def test_a_changed_value_is_not_reproduced(results):
    path = results / "figure2_population_scaling_data.csv"
    path.write_text(path.read_text().replace("3.078960863668129", "3.08"))
    _, check = analyze_published(results)
    found = check.set_index(["summary", "column"]).xs(("population-scaling", "sd"))
    assert (found["values"], found["reproduced"]) == (18, 17)
    assert found["largest_difference"] == pytest.approx(3.08 - 3.078960863668129)


def test_ratios_of_required_populations_follow_from_the_shares_of_each_seed(results):
    analysis, _ = analyze_published(results)
    ratios = analysis.tables["population-ratios"].set_index("threshold")["mean"]
    assert ratios.loc[1.5:5.0].round(3).tolist() == [
        1.218, 1.250, 1.272, 1.500, 1.623, 1.762, 1.546, 1.832,
    ]  # fmt: skip


def test_terms_add_up_to_published_differences(results):
    terms = read_summaries(results)["decomposition-by-seed"].set_index("seed")
    assert terms["support"].round(3).tolist() == [1.148, 1.435, 4.044]
    assert terms["voting"].round(3).tolist() == [0.216, -0.071, 1.035]
    difference = terms["accuracy"] - terms["reference_accuracy"]
    assert (terms["support"] + terms["voting"]).tolist() == pytest.approx(difference.tolist())


def test_differences_across_budgets_are_those_of_the_paper(results):
    analysis, _ = analyze_published(results)
    table = analysis.tables["budget-differences"].set_index(["task", "N", "reference_N", "K"])
    means = table["mean"].round(2).to_dict()
    paper = {
        ("countdown", 100, 300, 10): 1.53,
        ("countdown", 100, 300, 25): 0.93,
        ("gsm8k", 25, 300, 10): 2.60,
        ("gsm8k", 25, 300, 25): 3.11,
    }
    assert {place: means[place] for place in paper} == paper
    found = analysis.tables["observed-reductions"].set_index(["task", "K"])
    assert found["N"].to_dict() == {
        (task, size): least
        for task, least in (("countdown", 100), ("gsm8k", 25))
        for size in (10, 25)
    }
    assert found.loc[("gsm8k", 10), "reduction"] == 12


def test_figures_1_to_5_are_drawn_again(results):
    analysis, _ = analyze_published(results)
    figures = plan_figures(analysis)
    assert list(figures) == [
        "figure1-accuracy-differences",
        "figure2-population-scaling",
        "figure3-reward-survival",
        "figure4-required-population",
        "figure5-support",
    ]
    (transfer,) = figures["figure1-accuracy-differences"]
    assert isinstance(transfer, Bars)
    assert transfer.series["Qwen2.5-3B"] == {"Countdown": [2.6], "GSM8K": [0.08]}
    tail, ratio = figures["figure4-required-population"]
    assert isinstance(tail, Panel)
    assert isinstance(ratio, Panel)
    assert {name: span.label for name, span in tail.spans.items()} == {
        REFERENCE: "top 10 of N = 300",
        METHOD: "top 10 of N = 25",
    }
    assert ratio.level is not None
    assert ratio.level.y == 12
    support, terms = figures["figure5-support"]
    assert isinstance(support, Bars)
    assert isinstance(terms, Bars)
    assert list(support.series) == [f"{REFERENCE}, N = 300", f"{METHOD}, N = 25"]
    assert list(support.series[f"{METHOD}, N = 25"]) == ["0", "1", "2-4", "5-9", "10"]
    assert sum(terms.series[""]["Total"]) / 3 == pytest.approx(2.602982057113971)
    assert all(draw_panels(panels, "svg").startswith(b"<?xml") for panels in figures.values())


def test_inputs_alone_or_summaries_alone_are_enough(results):
    for path in results.glob("figure*.csv"):
        path.unlink()
    analysis, check = analyze_published(results)
    assert "reward-survival" in analysis.tables
    assert not len(check)
    (results / "candidate_rewards.csv").unlink()
    assert not is_published(results)


def test_a_file_with_other_columns_is_refused(results):
    (results / "figure5_support_per_seed.csv").write_text("task,seed\ngsm8k,42\n")
    with pytest.raises(InvalidInputError, match="figure5_support_per_seed"):
        read_summaries(results)


def test_a_reference_that_is_not_there_reduces_nothing():
    empty = pd.DataFrame(columns=["model", "task", "method", "seed", "N", "K", "accuracy"])
    assert not len(budget_differences(empty, None))
    assert not len(observed_reduction(empty.assign(mean=0.0), None))


def test_figure_5_is_recomputed_from_the_votes_of_each_question(results):
    _write_problems(results / "figure5_problem_level.csv")
    analysis, check = analyze_published(results)
    assert (check["reproduced"] == check["values"]).all()
    assert (check["largest_difference"] < 1e-11).all()
    found = check.set_index(["summary", "column"])["values"]
    assert found["support-bins"].to_dict() == {"percent": 30}
    assert found["support-bin-means"].to_dict() == {"mean": 10, "sd": 10}
    assert found["decomposition"].to_dict() == {"mean": 3, "sd": 3, "share_of_total": 3}
    assert found["decomposition-by-seed"].to_dict() == dict.fromkeys(
        ("accuracy", "reference_accuracy", "support", "voting", "total", "residual"), 3
    )
    terms = analysis.tables["decomposition-by-seed"].set_index("seed")
    assert terms["support"].round(3).tolist() == [1.148, 1.435, 4.044]
    assert terms["voting"].round(3).tolist() == [0.216, -0.071, 1.035]
    bounds = analysis.tables["decomposition"].set_index("term")
    assert (bounds["lower"] < bounds["mean"]).all()
    assert (bounds["mean"] < bounds["upper"]).all()


def test_means_follow_from_the_figures_of_each_seed_alone(results):
    for path in results.iterdir():
        if path.name not in {
            "figure5_exact_decomposition_per_seed.csv",
            "figure5_exact_decomposition_aggregate.csv",
            "figure5_support_per_seed.csv",
            "figure5_support_aggregate.csv",
        }:
            path.unlink()
    _, check = analyze_published(results)
    assert set(check["summary"]) == {"support-bin-means", "decomposition"}
    assert (check["reproduced"] == check["values"]).all()
    assert check["values"].sum() == 29


def _write_problems(path: Path) -> None:
    """Write a row for each question; the rows add up to the published counts (`_VOTES`)."""
    lines = [
        (method, seed, population, m, index >= missed)
        for method, population in ((REFERENCE, 300), (METHOD, 25))
        for seed, (rows, wrong, unanimous) in _VOTES[method].items()
        for m, count, missed in _counted(rows, wrong, unanimous)
        for index in range(count)
    ]
    table = pd.DataFrame(
        lines, columns=["method", "seed", "population_size", "correct_support", "ensemble_correct"]
    ).assign(task="gsm8k", k=10)
    table["sample_index"] = table.groupby(["method", "seed"]).cumcount()
    assert len(table) == 6 * 1319
    table.to_csv(path, index=False)


def _counted(rows: str, wrong: str, unanimous: int) -> list[tuple[int, int, int]]:
    """Return m, the rows with m right experts, and how many of them the vote gets wrong."""
    numbers = [int(number) for number in rows.split()]
    missed = [int(number) for number in wrong.split()]
    numbers[-1] -= unanimous
    places = [*range(len(numbers) - 1), 9]
    return [*zip(places, numbers, missed, strict=True), (10, unanimous, 0)]


# Counted in figure5_problem_level.csv: rows by m from 0 on, how many of them the vote gets wrong,
# and the rows with m = 10. Rows with 7 to 10 right experts stand together as the last number, in
# two seeds also those with 6: all of their votes are right, and equal q(m) have equal terms.
_VOTES = {
    REFERENCE: {
        42: ("183 53 82 51 79 63 0 808", "183 53 78 36 49 12 0 0", 438),
        43: ("186 73 57 71 66 67 0 799", "186 73 53 52 30 9 0 0", 425),
        44: ("181 88 68 76 57 67 73 709", "181 88 63 58 33 14 1 0", 428),
    },
    METHOD: {
        42: ("154 84 68 51 68 75 0 819", "154 84 64 37 37 17 0 0", 349),
        43: ("136 86 76 62 79 71 0 809", "136 86 69 41 40 13 0 0", 387),
        44: ("152 73 77 47 64 74 72 760", "152 72 68 37 28 13 1 0", 350),
    },
}
