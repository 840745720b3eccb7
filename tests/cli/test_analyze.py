from dataclasses import replace

import pandas as pd
import pytest

from modnorm.analysis.export import write_run


@pytest.fixture(scope="module")
def runs(make_run, tmp_path_factory):
    """Directories of finished runs; no test changes them."""
    folder, written = tmp_path_factory.mktemp("runs"), []
    for method in ("modular_norm", "randopt"):
        for seed in (42, 43):
            run = make_run(prefixes=(12, 24), method=method)
            population = {**run.spec["population"], "seed": seed}
            written.append(folder / f"{method}-{seed}")
            write_run(written[-1], replace(run, spec={**run.spec, "population": population}))
    return written


def test_runs_are_analyzed_into_tables_and_figures(modnorm, runs, tmp_path):
    code, out, err = modnorm("analyze", *runs, "--out", tmp_path / "out")
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
