import json
import re

from modnorm.suites import rendering
from modnorm.suites.rendering import BuiltTable, Figure, Printed, TableRow


def rows(figures):
    return tuple(TableRow(labels, (figure,)) for labels, figure in figures.items())


BESIDE = BuiltTable(
    title="Rows by m",
    source="",
    paper=None,
    headings=("", "m"),
    columns=("p, %",),
    rows=rows({("MN", "0"): Figure(25.0, None, {42: 25.0}, 1, None)}),
)
BOTH = BuiltTable(
    title="Accuracy",
    source="Table 9",
    paper="Table 9, over seeds",
    headings=("model", "method"),
    columns=("Countdown",),
    rows=rows(
        {
            ("1.5B", "MN"): Figure(37.5, 0.7071, {42: 38.0, 43: 37.0}, 2, Printed(37.8, 0.87)),
            ("1.5B", "RandOpt"): Figure(35.5, None, {42: 35.5}, 2, Printed(35.67, None)),
            ("3B", "MN"): Figure(None, None, {}, 2, None),
        }
    ),
    notes=("A note.",),
    beside=(BESIDE,),
)


def test_a_table_has_the_papers_line_above_ours_and_additional_figures_below():
    text = rendering.to_markdown(BOTH)
    lines = [re.split(r" *\| *", line.strip("| ")) for line in text.splitlines() if line]
    assert [line for line in lines if ":" not in line[0]] == [
        ["### Accuracy (Table 9)"],
        ["model", "method", "", "Countdown"],
        ["1.5B", "MN", "paper", "37.80 ± 0.87"],
        ["ours", "37.50 ± 0.71"],
        ["1.5B", "RandOpt", "paper", "35.67"],
        ["ours", "35.50 (1 of 2 seeds)"],
        ["3B", "MN", "ours", "not run"],
        ["2 of 3 figures lack cells"],
        ["A note."],
        ["#### Rows by m"],
        ["m", "p, %"],
        ["MN", "0", "25.00"],
    ]
    assert "\npaper: Table 9, over seeds\n" in text


def test_documents_keep_every_seed_and_additional_figures():
    document, beside = json.loads(json.dumps([*map(rendering.to_document, (BOTH, BESIDE))]))
    first, _, last = document["rows"]
    assert first["labels"] == ["1.5B", "MN"]
    assert first["figures"][0]["by_seed"] == {"42": 38.0, "43": 37.0}
    assert first["figures"][0]["paper"] == {"mean": 37.8, "sd": 0.87}
    (empty,) = last["figures"]
    assert empty == {"mean": None, "sd": None, "by_seed": {}, "seeds": 2, "paper": None}
    assert document["missing"] == 2
    assert document["beside"] == [beside]
