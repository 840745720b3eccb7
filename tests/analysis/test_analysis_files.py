import pandas as pd
import pytest

from modnorm.analysis.analyses import analyze
from modnorm.analysis.export import write_run
from modnorm.analysis.figures import FORMATS, write_analysis, write_table
from modnorm.analysis.run import load_run


@pytest.fixture(scope="module")
def analysis(make_run, tmp_path_factory):
    runs = []
    for method in ("modular_norm", "randopt"):
        directory = tmp_path_factory.mktemp("runs") / method
        write_run(directory, make_run(method=method))
        runs.append(load_run(directory))
    return analyze(runs)


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


def test_an_analysis_is_tables_and_figures(analysis, tmp_path):
    figures = write_analysis(tmp_path, analysis)
    assert len(analysis.tables) == 10  # no method exceeds the other: no reductions
    assert figures == (
        "figure1-accuracy-differences",
        "figure2-population-scaling",
        "figure3-reward-survival",
        "figure4-required-population",
        "figure5-support",
    )
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    assert names == {
        *(f"tables/{name}.{kind}" for name in analysis.tables for kind in FORMATS),
        *(f"figures/{name}.{kind}" for name in figures for kind in ("png", "svg")),
    }
