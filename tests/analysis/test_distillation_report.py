"""The report of a distillation, and the gain that its student keeps."""

import json
import re
from dataclasses import replace
from functools import reduce

import pytest

from modnorm.analysis.distillation import describe_gain, gain_kept, load_distillation, search_entry
from modnorm.analysis.export import write_run
from modnorm.analysis.report import render_distillation
from modnorm.analysis.run import load_run
from tests.analysis.distillations import make_document
from tests.faults import error_at


@pytest.mark.parametrize(
    ("base", "vote", "student", "kept", "words"),
    [
        (0.2, 0.6, 0.5, 0.75, "gains 75 % of what round 1's vote gains"),
        (0.2, 0.6, 0.7, 1.25, "gains 125 %"),
        (0.2, 0.6, 0.1, -0.25, "gains -25 %"),
        (0.2, 0.2, 0.4, None, "gained nothing"),
        (0.4, 0.2, 0.4, None, "gained nothing"),
    ],
)
def test_the_gain_of_the_student_is_a_share_of_the_first_votes(base, vote, student, kept, words):
    document = make_document(base, [vote, 0.9], [student, 0.95])
    assert gain_kept(document) == (kept if kept is None else pytest.approx(kept))
    assert words in describe_gain(document)
    assert "one model instead of 10" in describe_gain(document)


def test_the_report_shows_rounds_datasets_and_the_best_student():
    page = render_distillation(make_document(0.2, [0.6, 0.7], [0.5, 0.65]))
    assert "gains 75 % of what" in page
    assert "student of round 1, the best by development rows" in page
    for number in (1, 2):
        assert f'href="rounds/{number}/report.html"' in page
        assert f'href="rounds/{number}/dataset.jsonl"' in page
    assert "50.0 % [40.4, 59.6]" in page
    assert re.search(r"<td>3\.0000</td><td>0\.2500</td>", page)
    assert "24 s" in page


def test_a_search_by_another_metric_has_no_interval_that_counts_rows(run, directory):
    """A balanced accuracy may be a multiple of one row by chance, as the 0.2 of the base is."""
    write_run(directory, run)
    counted = search_entry(load_run(directory), "tiny", 10)
    assert counted["base"]["interval"] == pytest.approx((0.118, 0.318), abs=0.001)
    assert counted["population"] == 48
    balanced = [replace(each, metric=each.metric + 0.001) for each in run.ensembles]
    write_run(directory, replace(run, ensembles=balanced))
    entry = search_entry(load_run(directory), "tiny", 10)
    models = entry["base"], entry["best_expert"], entry["vote"]
    assert [each["interval"] for each in models] == [None, None, None]
    assert entry["best_expert"]["metric"] == counted["best_expert"]["metric"]


def test_a_damaged_document_is_refused_with_its_place(tmp_path):
    document, file = make_document(0.2, [0.6], [0.5]), tmp_path / "distillation.json"
    file.write_text(json.dumps(document))
    assert load_distillation(tmp_path) == json.loads(json.dumps(document))
    for path in (("rounds",), ("rounds", 1, "search", "vote", "metric"), ("rounds", 0, "budget")):
        damaged = json.loads(json.dumps(document))
        *above, last = path
        holder = reduce(lambda inner, step: inner[step], above, damaged)
        holder[last] = "text"
        file.write_text(json.dumps(damaged))
        with error_at("directory", f"{file} is damaged: {'.'.join(map(str, path))}: "):
            load_distillation(tmp_path)


def test_names_are_text():
    page = render_distillation(make_document(0.2, [0.6], [0.5], name="<script>alert(1)</script>"))
    assert "<script>" not in page
