"""Candidates by page: sorted and filtered as a plain loop does it."""

import csv
import random
from typing import TYPE_CHECKING, cast

import pytest

from modnorm.analysis.candidates import CANDIDATE_TYPES
from modnorm.analysis.run import Run
from modnorm.web.queries import PAGE_LINES, PageQuery, candidate_page

if TYPE_CHECKING:
    from modnorm.analysis.document import ResultsDocument

COUNT = 230


def write_candidates(path, count):
    generator = random.Random(3)
    rewards = [generator.choice([None, *(i / 8 for i in range(8))]) for _ in range(count)]
    known = [(-reward, i) for i, reward in enumerate(rewards) if reward is not None]
    ranks = {index: rank for rank, (_, index) in enumerate(sorted(known), 1)}
    lines = [
        {
            **{name: 0 for name, kind in CANDIDATE_TYPES.items() if kind == "int64"},
            "index": i,
            "seed": 2**64 - 1 - i,
            "state": "failed" if reward is None else "scored",
            "rank": ranks.get(i),
            "selection_reward": reward,
            "gain": None if reward is None else reward - 0.5,
            "heldout_metric": 0.25 if ranks.get(i, 99) <= 10 else None,
            "selection_tokens": generator.randrange(50),
        }
        for i, reward in enumerate(rewards)
    ]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, CANDIDATE_TYPES, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    return lines


@pytest.fixture
def path(tmp_path):
    return tmp_path / "candidates.csv"


@pytest.fixture
def lines(path):
    return write_candidates(path, COUNT)


def read_page(path, query):
    return candidate_page(
        Run(path.parent, cast("ResultsDocument", {}), "run").candidates_frame, query
    )


def indices(path, **query):
    """Return the candidates of all pages."""
    first = read_page(path, PageQuery(**query))
    pages = [read_page(path, PageQuery(**query, page=n + 1)) for n in range(first.pages)]
    assert all(len(page.lines) == PAGE_LINES for page in pages[:-1])
    assert sum(len(page.lines) for page in pages) == first.matches
    return [line.index for page in pages for line in page.lines]


@pytest.mark.parametrize("column", ["rank", "gain", "state"])
@pytest.mark.parametrize("descending", [False, True])
def test_candidates_are_sorted_with_the_unmeasured_last(path, lines, column, descending):
    known = [each for each in lines if each[column] is not None]
    known.sort(key=lambda each: each[column], reverse=descending)  # stable: equal ones by index
    unknown = [each for each in lines if each[column] is None]
    expected = [each["index"] for each in (*known, *unknown)]
    assert indices(path, sort=column, descending=descending) == expected


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"state": "failed"}, lambda each: each["state"] == "failed"),
        ({"least": 0.5}, lambda each: (each["selection_reward"] or 0) >= 0.5),
        ({"experts": True}, lambda each: each["heldout_metric"] is not None),
        ({"state": "stopped"}, lambda each: False),
    ],
)
def test_candidates_are_filtered(path, lines, query, wanted):
    expected = [each["index"] for each in lines if wanted(each)]
    assert indices(path, sort="index", **query) == expected


def test_a_page_past_the_last_is_the_last(path, lines):
    found = read_page(path, PageQuery(sort="index", page=1000))
    assert (found.page, found.pages) == (5, 5)
    assert [line.index for line in found.lines] == list(range(200, 230))
