import pytest
import yaml

from modnorm.errors import InvalidInputError
from modnorm.suites import load_suite

METRIC = {"kind": "metric", "title": "t", "rows": ["method"]}


def test_an_option_may_be_a_part_or_several(write, tmp_path):
    parts = {
        "puzzles": {"task": {"name": "countdown", "selection": "a.jsonl", "heldout": "b.jsonl"}},
        "short": {"task": {"max_tokens": 5}},
    }
    (tmp_path / "parts.yaml").write_text(yaml.safe_dump(parts))
    axes = {
        "method": {"RandOpt": {"method": {"name": "randopt", "sigma": 0.01}}},
        "task": {
            "whole": "puzzles",
            "cut": ["puzzles", "short", {"task": {"scorer": "reference"}}],
        },
    }
    cells = load_suite(write(parts="parts.yaml", axes=axes)).cells
    assert [cell.spec.task.max_tokens for cell in cells] == [None, None, 5, 5]
    assert cells[2].spec.task.scorer == "reference"


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"axes": {"task": {"a": "puzzles"}}}, "axes.task.a", "no part named 'puzzles'"),
        ({"base": ["nothing"]}, "base", "no part named 'nothing'"),
        ({"parts": "absent.yaml"}, "parts", "cannot read"),
        ({"name": "No Name"}, "name", "match"),
        ({"seeds": []}, "seeds", "at least 1"),
        ({"seeds": [1, 1]}, "suite", "seeds: each once"),
        ({"axes": {"seed": {"a": {}}}}, "suite", "no name of an axis"),
        ({"axes": {"task": {}}}, "suite", "axes.task: has no options"),
        ({"colour": 1}, "colour", "not permitted"),
        ({"exclude": [{"colour": "red"}]}, "suite", "exclude.0: there is no axis 'colour'"),
        ({"exclude": [{"task": "red"}]}, "suite", "exclude.0: task has no option 'red'"),
        ({"profiles": {"axis": "task", "from": "x"}}, "suite", "profiles: task has no option 'x'"),
        ({"tables": [{**METRIC, "rows": ["colour"]}]}, "suite", "tables.0: there is no axis"),
        (
            {"tables": [{**METRIC, "at": {"task": "x"}}]},
            "suite",
            "tables.0.at: task has no option",
        ),
        ({"tables": [{**METRIC, "reduction": {"N": 4}}]}, "tables.0.metric", "N and K among"),
        ({"tables": [{**METRIC, "kind": "x"}]}, "tables.0", "tag"),
        ({"tables": [{**METRIC, "rows": []}]}, "tables.0.metric.rows", "at least 1"),
    ],
)
def test_faults_are_named_by_field(write, changes, field, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        load_suite(write(**changes))
    assert caught.value.field == field


@pytest.mark.parametrize("text", ["[1]", "a: [", None])
def test_files_that_hold_no_suite_are_refused(tmp_path, text):
    path = tmp_path / "suite.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidInputError) as caught:
        load_suite(path)
    assert caught.value.field == "suite"
