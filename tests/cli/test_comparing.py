"""`modnorm compare` and `analyze`."""

import shutil
from dataclasses import replace

import pandas as pd
import pytest

from modnorm.analysis.export import write_run


@pytest.fixture(scope="module")
def runs(make_run, tmp_path_factory):
    """Two finished runs, the second without skill, and some made under other conditions.

    No test changes their directories.
    """
    folder = tmp_path_factory.mktemp("runs")
    first = make_run(prefixes=(24,), sizes=(1, 5))
    votes = {
        key: [replace(vote, correct=False) for vote in rows] for key, rows in first.votes.items()
    }
    wrong = replace(
        first,
        votes=votes,
        ensembles=[replace(each, metric=0.0, correct=0) for each in first.ensembles],
    )

    def made_from(**changes):
        return replace(first, provenance={**first.provenance, **changes})

    written = {
        "good": first,
        "wrong": wrong,
        "other": made_from(heldout_digest="cd" * 32),
        "reworded": made_from(prompts_digest="cd" * 32),
    }
    for name, run in written.items():
        write_run(folder / name, run)
    return {name: folder / name for name in written}


def test_runs_stand_in_columns_with_intervals(printed, runs):
    out = printed("compare", runs["good"], runs["wrong"])
    lines = {line.split("  ")[0]: " ".join(line.split()) for line in out.splitlines()}
    assert lines["base"] == "base 20.0 % [11.8, 31.8] 20.0 % [11.8, 31.8]"
    assert lines["rank 1 by selection"].count("%") == 2
    assert lines["K=5"].endswith("0.0 % [0.0, 6.0]")


def test_a_table_lists_only_the_sizes_of_its_runs(printed, runs, make_run, tmp_path):
    for number in range(4):
        write_run(
            tmp_path / str(number), make_run(prefixes=(24,), sizes=(5,) if number else (1, 5))
        )
    out = printed("compare", tmp_path)
    first, second = out.split("model ")[1:3]
    (line,) = (line for line in first.splitlines() if line.startswith("K=1"))
    assert line.split()[-2:] == ["-", "-"]
    assert "K=5" in second
    assert "K=1" not in second


def test_a_run_is_not_compared_with_itself(modnorm, runs):
    code, out, err = modnorm("compare", runs["good"], runs["good"])
    assert (code, out) == (2, "")
    assert "is named twice" in err


def test_runs_on_other_rows_are_not_paired(modnorm, runs):
    code, out, err = modnorm("compare", runs["good"], runs["other"])
    assert code == 0
    assert "good and other are not paired: held-out rows differ." in out
    assert "not comparable: other differs from good in held-out rows" in err


def test_a_folder_stands_for_its_finished_runs(modnorm, refusal, runs, tmp_path):
    folder = tmp_path / "folder"
    for name in ("good", "wrong"):
        shutil.copytree(runs[name], folder / name)
    (folder / "later").mkdir()
    (folder / "later" / "spec.json").write_text("{}")
    (folder / "state").mkdir()
    _, expected, _ = modnorm("compare", folder / "good", folder / "wrong")
    code, out, err = modnorm("compare", folder)
    assert (code, out) == (0, expected)
    assert err == f"note: {folder / 'later'} is left out: it has not finished\n"
    shutil.copytree(folder / "later", tmp_path / "only" / "later")
    assert "error: run: none of the runs has finished" in refusal("compare", tmp_path / "only")
    shutil.copytree(folder / "good", folder / "later" / "rounds" / "1")
    (folder / "later" / "distillation.json").write_text("{}")
    assert "rounds" not in modnorm("compare", folder / "later", folder / "wrong")[2]
    shutil.rmtree(folder / "later" / "rounds")
    err = modnorm("compare", folder)[2]
    assert err == f"note: {folder / 'later'} is left out: it is a distillation\n"
    shutil.rmtree(folder / "later")
    code, out, err = modnorm("compare", folder / "good", folder / "state", folder / "wrong")
    assert (code, out) == (0, expected)
    assert err == f"note: {folder / 'state'} is left out: it is the database of a lab\n"
    shutil.copytree(folder / "good", folder / "several" / "one")
    code, out, err = modnorm("compare", folder)
    assert (code, out) == (0, expected)
    assert f"note: {folder / 'several'} is left out: it is a folder with runs" in err
    assert "absent does not exist" in refusal("compare", tmp_path / "absent")


@pytest.fixture(scope="module")
def seeded_runs(make_run, tmp_path_factory):
    """Directories of finished runs; no test changes them."""
    folder, written = tmp_path_factory.mktemp("runs"), []
    for method in ("modular_norm", "randopt"):
        for seed in (42, 43):
            run = make_run(prefixes=(12, 24), method=method)
            population = {**run.spec["population"], "seed": seed}
            written.append(folder / f"{method}-{seed}")
            write_run(written[-1], replace(run, spec={**run.spec, "population": population}))
    return written


def test_runs_are_analyzed_into_tables_and_figures(modnorm, seeded_runs, tmp_path):
    code, out, err = modnorm("analyze", *seeded_runs, "--out", tmp_path / "out")
    assert code == 0, err
    assert "10 tables and 5 figures written to" in err
    heading, first = out.splitlines()[:2]
    assert heading.split()[3:] == ["N", "K", "seeds", "mean", "sd", "lower", "upper"]
    assert first.split()[:6] == ["tiny-thicket", "countdown", "modular_norm", "12", "1", "2"]
    table = pd.read_csv(tmp_path / "out" / "tables" / "budget-differences.csv")
    assert set(table["reference_method"]) == {"randopt"}
    figures = {
        "figure1-accuracy-differences",
        "figure2-population-scaling",
        "figure3-reward-survival",
        "figure4-required-population",
        "figure5-support",
    }
    written = (tmp_path / "out" / "figures").iterdir()
    assert {each.name for each in written} == {
        f"{name}.{kind}" for name in figures for kind in ("png", "svg")
    }
