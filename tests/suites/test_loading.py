import pytest
import yaml

from modnorm.errors import InvalidInputError
from modnorm.suites import load_suite
from modnorm.suites.loading import inline_files, setting
from tests.faults import error_at

METRIC = {"kind": "metric", "title": "t", "rows": ["method"]}
SURVIVAL = {"kind": "survival", "title": "t", "thresholds": [1.0]}
DIFFERENCE = {
    "kind": "difference",
    "title": "t",
    "compare": [{"label": "a", "of": {"method": "MN"}, "against": {"method": "RandOpt"}}],
}
PAPER = {"source": "p", "values": 1}


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


def test_a_suite_extends_another_one(write, tmp_path):
    write(exclude=[{"seed": 43}])
    (tmp_path / "suite.yaml").rename(tmp_path / "lower.yaml")
    (tmp_path / "parts.yaml").write_text("short: {task: {max_tokens: 5}}")
    lower = load_suite(tmp_path / "lower.yaml")
    upper = {
        "extends": "lower.yaml",
        "name": "upper",
        "parts": "parts.yaml",
        "base": "short",
        "axes": {"method": {"Wide": {"method": {"name": "randopt", "sigma": 0.02}}}},
        "overrides": [
            {"where": {"method": "Wide"}, "set": {"population": {"size": 7, "prefixes": [7]}}}
        ],
    }
    (tmp_path / "upper.yaml").write_text(yaml.safe_dump(upper))
    loaded = load_suite(tmp_path / "upper.yaml")
    assert (loaded.suite.name, loaded.suite.title) == ("upper", lower.suite.title)
    assert {cell.seed for cell in loaded.cells} == {42}
    assert {cell.labels["method"] for cell in loaded.cells} == {"Wide"}
    specs = [cell.spec for cell in loaded.cells]
    assert {(one.task.max_tokens, one.method.radius, one.population.size) for one in specs} == {
        (5, 0.02, 7)
    }
    (tmp_path / "third.yaml").write_text(yaml.safe_dump({**upper, "extends": "upper.yaml"}))
    with error_at("extends", "upper.yaml extends a suite itself"):
        load_suite(tmp_path / "third.yaml")


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"axes": {"task": {"a": "puzzles"}}}, "axes.task.a", "no part named 'puzzles'"),
        ({"parts": "absent.yaml"}, "parts", "cannot read"),
        ({"extends": "absent.yaml"}, "extends", "cannot read"),
        ({"name": "No Name"}, "name", "'No Name' must be of a-z, 0-9 and -"),
        ({"seeds": []}, "seeds", "at least 1"),
        ({"seeds": [1, 1]}, "seeds", "name each seed once"),
        ({"axes": {"seed": {"a": {}}}}, "axes", "cannot name an axis"),
        ({"axes": {"task": {}}}, "axes.task", "has no options"),
        ({"colour": 1}, "colour", "no such field here, only name, title"),
        ({"profiles": {"from": "a", "axis": "task", "x": 1}}, "profiles.x", "only axis, from"),
        ({"exclude": [{"colour": "red"}]}, "exclude.0", "there is no axis 'colour'"),
        ({"exclude": [{"task": "red"}]}, "exclude.0", "task has no option 'red'"),
        ({"profiles": {"axis": "task", "from": "x"}}, "profiles", "task has no option 'x'"),
        (
            {"tables": [{**METRIC, "rows": ["colour"]}]},
            "tables.0",
            "'colour', only method, task, K",
        ),
        (
            {"tables": [{**METRIC, "at": {"seed": 7}}]},
            "tables.0.at",
            "seed has no option '7', only 42, 43",
        ),
        ({"tables": [{**METRIC, "at": {"N": 7}}]}, "tables.0.at", "N has no option 7, only 2, 4"),
        ({"tables": [{**METRIC, "at": {"K": 5}}]}, "tables.0.at", "K has no option 5, only 1, 2"),
        (
            {"tables": [{**DIFFERENCE, "ensemble_sizes": [1, 5]}]},
            "tables.0.ensemble_sizes",
            "K has no option 5, only 1, 2",
        ),
        ({"tables": [{**METRIC, "reduction": {"N": 4}}]}, "tables.0", "N and K among"),
        (
            {"tables": [{**METRIC, "contrast": {"axis": "task", "of": "more", "against": []}}]},
            "tables.0.contrast.axis",
            "must be of the rows or columns: method",
        ),
        (
            {"tables": [{**METRIC, "contrast": {"axis": "method", "of": "MN", "against": ["x"]}}]},
            "tables.0.contrast",
            "method has no option 'x', only RandOpt, MN",
        ),
        (
            {"tables": [{**METRIC, "rows": ["N"], "at_row": {"x": {"K": 1}}}]},
            "tables.0.at_row.x",
            "N has no option x, only 2, 4",
        ),
        ({"tables": [{**METRIC, "kind": "x"}]}, "tables.0.kind", "no 'x' here, only metric, diff"),
        ({"tables": [{**METRIC, "at": {"N": "all"}}]}, "tables.0.at", "N must be a whole number"),
        ({"tables": [{**SURVIVAL, "rows": ["N"]}]}, "tables.0.rows", "N is equal in all cells"),
        ({"tables": [{**METRIC, "paper": {**PAPER, "x": 1}}]}, "tables.0.paper.x", "source, val"),
    ],
)
def test_faults_are_named_by_field(write, changes, field, message):
    with error_at(field, message):
        load_suite(write(**changes))


def test_a_tail_table_may_name_any_part_of_the_population(load):
    def tail(population):
        places = {"of": {"method": "MN", "N": population}, "against": {"method": "RandOpt"}}
        compare = [{"label": "a", **places}]
        load(tables=[{"kind": "tail", "title": "t", "thresholds": [1.0], "compare": compare}])

    tail(3)
    with error_at("tables.0.compare.0.of", "N has no option 5, only 2, 4"):
        tail(5)


def test_settings_may_change_the_sizes_that_a_table_names(write):
    path = write(tables=[{**METRIC, "at": {"N": 4}}])
    assert load_suite(path, [setting("population={size: 3, prefixes: [3]}")]).cells


@pytest.mark.parametrize("text", ["[1]", None])
def test_files_that_hold_no_suite_are_refused(tmp_path, text):
    path = tmp_path / "suite.yaml"
    if text is not None:
        path.write_text(text)
    with error_at("suite"):
        load_suite(path)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: [", "suite.yaml:1: "),
        ("name: a\nname: b", "suite.yaml:2: name appears twice"),
        ("name: a\n\ttitle: b", "suite.yaml:2: a tab where YAML takes none"),
        ("name: a\ntitle: b\nseeds: [1]\naxes: {}\ncolour: 1", "suite.yaml:5: colour: "),
        ("name: a\naxes: {m: {b: {}}}\ntitle: b\nseeds:\n- 1\n- 1", "suite.yaml:4: seeds: "),
        ("name: a\ntitle: b\nseeds: [1]\naxes: {m: {b: {}}}", "suite.yaml: cell b / 1: "),
        ("extends: other.yaml\nexclude: [{colour: red}]", "suite.yaml: exclude.0: "),
    ],
)
def test_faults_are_named_by_file_and_line(write, tmp_path, text, place):
    write().rename(tmp_path / "other.yaml")
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInputError) as caught:
        load_suite(path)
    assert str(caught.value).startswith(f"{tmp_path}/{place}")


TASK = """
name: capitals
prompt: {user: "{country}?"}
columns: [country, capital]
answer: capital
extract: {regex: "<answer>(.*?)</answer>"}
compare: exact
max_tokens: 8
"""


@pytest.fixture
def capitals(load, tmp_path, monkeypatch):
    """Load a cell that names a task file in the working directory."""
    monkeypatch.chdir(tmp_path)

    def make(**method):
        task = {"name": "task.yaml", "selection": "a.jsonl", "heldout": "b.jsonl"}
        axes = {
            "method": {"r": {"method": {"name": "randopt", **method}}},
            "task": {"t": {"task": task}},
        }
        return load(axes=axes, seeds=[1])

    return make


def test_the_text_of_a_task_file_replaces_its_name(capitals, tmp_path):
    (tmp_path / "task.yaml").write_text(TASK)
    (cell,) = inline_files(capitals(sigma=0.1), tmp_path).cells
    assert cell.spec.task.name == "capitals"
    assert cell.spec.task.declaration == TASK


def test_a_missing_file_names_the_cell(capitals, tmp_path):
    with error_at("cell r / t / 1"):
        inline_files(capitals(sigma=0.1), tmp_path)
    (tmp_path / "task.yaml").write_text(TASK)
    with error_at("cell r / t / 1", "no file absent"):
        inline_files(capitals(sigma={"artifact": "absent.json"}), tmp_path)
