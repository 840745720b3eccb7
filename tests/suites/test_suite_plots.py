from statistics import stdev

import pytest

from modnorm.analysis.bands import Bars, Level, Panel
from modnorm.suites import suite_plots
from modnorm.suites.building import build_tables
from modnorm.suites.outcomes import load_outcomes
from modnorm.suites.suite_plots import draw_tables
from modnorm.suites.table_specs import Comparison

PNG = b"\x89PNG"
PLACE = {"task": "more"}
PAIR = {
    "label": "more",
    "of": {"method": "MN", **PLACE, "N": 2, "K": 2},
    "against": {"method": "RandOpt", **PLACE, "N": 4, "K": 2},
}
TABLES = [
    {
        "kind": "metric",
        "title": "Scaling",
        "rows": ["task", "method", "N"],
        "columns": ["K"],
        "base_row": "base",
        "paper": {"source": "p", "values": {"more": {"MN": {2: {2: 9}, 4: {2: 11}}}}},
    },
    {"kind": "survival", "title": "Gains", "rows": ["task", "method"], "thresholds": [0, 10]},
    {"kind": "tail", "title": "Tail", "thresholds": [0, 10], "hits": 1, "compare": [PAIR]},
    {"kind": "support", "title": "Support", "compare": [PAIR]},
    {"kind": "wall_clock", "title": "Time", "rows": ["task", "method"]},
]


@pytest.fixture
def draw(load, tmp_path):
    def make():
        loaded = load(tables=TABLES)
        outcomes = load_outcomes(loaded.cells, tmp_path / "out")
        return draw_tables(loaded.suite.tables, build_tables(loaded, outcomes))

    return make


def test_plotted_tables_are_drawn(draw, load, finish):
    for cell in load().cells:
        finish(cell, (0.2, 0.3, 0.4, 0.5), {(2, 2): 0.1, (4, 2): 0.3}, right=[2, 1, 0])
    images = draw()
    assert list(images) == ["1-scaling", "2-gains", "3-tail", "4-support"]
    assert all(image.startswith(PNG) for image in images.values())
    assert images == draw()


def test_tables_without_values_are_not_drawn(draw):
    assert draw() == {}


@pytest.fixture
def panels(draw, monkeypatch):
    """Return what would be drawn, by name."""
    monkeypatch.setattr(suite_plots, "draw_panels", list)
    return draw


@pytest.fixture
def pair(load):
    """The cells of the pair by method and seed."""
    cells = [cell for cell in load().cells if cell.labels["task"] == PLACE["task"]]
    return {(cell.labels["method"], cell.seed): cell for cell in cells}


def test_tails_show_cutoffs_and_the_ratio_of_populations(panels, pair, finish):
    for seed, second in ((42, 0.4), (43, 0.5)):
        finish(pair["MN", seed], (0.3, second, 0.6, 0.6), {}, right=[2, 1])
        finish(pair["RandOpt", seed], (0.3, 0.3, 0.3, 0.4), {}, right=[1, 0])
    tail, required = panels()["3-tail"]
    assert isinstance(tail, Panel)
    assert list(tail.series) == ["RandOpt", "MN"]
    of, against = tail.spans["MN"], tail.spans["RandOpt"]
    assert (of.label, against.label) == ("top 1 of N = 2", "top 1 of N = 4")
    assert (of.mean, of.sd) == pytest.approx((25.0, stdev([20, 30])))
    assert (against.mean, against.sd) == pytest.approx((20.0, 0.0))
    assert list(required.series) == ["RandOpt / MN"]
    assert required.level == Level("N = 4 / N = 2", 2.0)


def test_support_shows_rows_by_right_experts_beside_the_terms(panels, pair, finish):
    right = {("MN", 42): [2] * 20, ("MN", 43): [2] * 10 + [1] * 5 + [0] * 5}
    right |= {("RandOpt", 42): [0] * 20, ("RandOpt", 43): [1] * 20}
    for place, counts in right.items():
        finish(pair[place], (0.2, 0.3, 0.4, 0.5), {}, right=counts)
    shares, terms = panels()["4-support"]
    assert isinstance(shares, Bars)
    assert shares.series == {
        "RandOpt, N = 4": {"0": [100.0, 0.0], "1": [0.0, 100.0], "2": [0.0, 0.0]},
        "MN, N = 2": {"0": [0.0, 25.0], "1": [0.0, 25.0], "2": [100.0, 50.0]},
    }
    ((_, bars),) = terms.series.items()
    assert list(bars) == ["Support redistribution", "Conditional voting", "Total"]
    assert bars["Total"] == pytest.approx([100.0, 50.0])


@pytest.mark.parametrize(
    ("of", "against", "names"),
    [
        ({"method": "MN", "N": 2}, {"method": "RandOpt", "N": 4}, ("MN, N = 2", "RandOpt, N = 4")),
        ({"method": "MN", "N": 2}, {"method": "MN", "N": 4}, ("N = 2", "N = 4")),
        ({"method": "MN", "task": "more"}, {"method": "MN"}, ("more", "against")),
        ({"method": "MN"}, {"method": "MN"}, ("of", "against")),
    ],
)
def test_places_are_named_by_their_differing_options(of, against, names):
    assert suite_plots._names(Comparison(label="x", of=of, against=against)) == names
