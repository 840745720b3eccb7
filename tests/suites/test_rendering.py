from dataclasses import replace
from typing import Any

from modnorm.suites.built_tables import BuiltTable, FigureRow, Printed, TableFigure
from modnorm.suites.rendering import to_document, to_markdown, to_text

TABLE = BuiltTable(
    title="Accuracy",
    source="Table 9",
    headings=("model", "method"),
    columns=("Countdown",),
    rows=(
        FigureRow(("1.5B", "MN"), (TableFigure({42: 38.0, 43: 37.0}, 2, Printed(37.8, 0.87)),)),
        FigureRow(("1.5B", "RandOpt"), (TableFigure({42: 35.5}, 2, Printed(35.67)),)),
        FigureRow(("3B", "MN"), (TableFigure({}, 2),)),
    ),
    notes=("A note.",),
    paper_source="Table 9, over seeds",
)

BESIDE = BuiltTable(
    title="Rows by m",
    source="",
    headings=("", "m"),
    columns=("p, %",),
    rows=(FigureRow(("MN", "0"), (TableFigure({42: 25.0}, 1),)),),
)
BOTH = replace(TABLE, beside=(BESIDE,))


def test_text_has_the_papers_line_above_ours():
    assert to_text(TABLE).splitlines() == [
        "Accuracy (Table 9)",
        "",
        "model  method                     Countdown",
        "1.5B   MN       paper          37.80 ± 0.87",
        "                ours           37.50 ± 0.71",
        "1.5B   RandOpt  paper                 35.67",
        "                ours   35.50 (1 of 2 seeds)",
        "3B     MN       ours                not run",
        "",
        "paper: Table 9, over seeds",
        "2 of 3 figures wait for cells",
        "A note.",
    ]


def test_markdown_is_a_table():
    lines = to_markdown(TABLE).splitlines()
    assert lines[0] == "### Accuracy (Table 9)"
    assert lines[2] == "| model | method |  | Countdown |"
    assert lines[3] == "| --- | --- | --- | ---: |"
    assert lines[5] == "|  |  | ours | 37.50 ± 0.71 |"
    assert "A note." in lines


def test_documents_keep_every_seed():
    document: dict[str, Any] = to_document(TABLE)
    first, _, last = document["rows"]
    assert first["labels"] == ["1.5B", "MN"]
    assert first["figures"][0]["by_seed"] == {"42": 38.0, "43": 37.0}
    assert first["figures"][0]["paper"] == {"mean": 37.8, "sd": 0.87}
    empty: dict[str, Any] = {"mean": None, "sd": None, "by_seed": {}, "seeds": 2, "paper": None}
    assert last["figures"] == [empty]
    assert document["missing"] == 2


def test_additional_figures_follow_their_table():
    text = to_text(BOTH)
    assert text.startswith(to_text(TABLE))
    assert text.removeprefix(to_text(TABLE)).splitlines() == [
        "",
        "Rows by m",
        "",
        "    m   p, %",
        "MN  0  25.00",
    ]
    markdown = to_markdown(BOTH).removeprefix(to_markdown(TABLE)).splitlines()
    assert markdown[:3] == ["", "#### Rows by m", ""]
    assert "| MN | 0 | 25.00 |" in markdown


def test_documents_hold_additional_figures():
    document: dict[str, Any] = to_document(BOTH)
    assert document["beside"] == [to_document(BESIDE)]
    assert document["beside"][0]["rows"][0]["figures"][0]["by_seed"] == {"42": 25.0}
    assert to_document(TABLE)["beside"] == []
