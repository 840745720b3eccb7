import pytest

from modnorm.suites.building import build_tables
from modnorm.suites.drawing import draw_tables
from modnorm.suites.outcomes import load_outcomes

PNG = b"\x89PNG"
PLACE = {"task": "more"}
PAIR = {
    "label": "more",
    "of": {"method": "MN", **PLACE, "N": 4, "K": 2},
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


def test_what_the_paper_plots_is_drawn(draw, load, finish):
    for cell in load().cells:
        finish(cell, (0.2, 0.3, 0.4, 0.5), {(2, 2): 0.1, (4, 2): 0.3}, right=[2, 1, 0])
    images = draw()
    assert list(images) == ["1-scaling", "2-gains", "3-tail", "4-support"]
    assert all(image.startswith(PNG) for image in images.values())
    assert images == draw()


def test_what_has_no_numbers_yet_is_not_drawn(draw):
    assert draw() == {}
