"""Specs from files and mappings: which are refused, and how the error names the fault."""

import gc
import json

import pytest

from modnorm.errors import InvalidInputError
from modnorm.spec import compose_yaml, load_spec, parse_spec, read_yaml
from modnorm.spec.search_sections import MAX_POPULATION
from tests.faults import error_at

ROWS = {"name": "countdown", "selection": "a", "heldout": "b"}
SOUND = {
    "model": "tiny-thicket",
    "task": ROWS,
    "method": {"name": "randopt", "radius": 0.1},
    "population": {"size": 4},
}


def refused(**changes):
    with pytest.raises(InvalidInputError) as caught:
        parse_spec({**SOUND, **changes})
    return caught.value


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"": 1}, "''"), ({" ": 1}, "' '"), ({"population": {"size": 4, "": 1}}, "population.''")],
)
def test_a_blank_key_is_quoted(changes, field):
    assert refused(**changes).field == field


@pytest.mark.parametrize(
    ("letter", "code"),
    [
        ("\0", "U+0000"),
        ("\a", "U+0007"),
        ("\n", "U+000A"),
        ("\x9b", "U+009B"),
        ("\u200b", "U+200B"),
        ("\u2028", "U+2028"),
        ("\u202e", "U+202E"),
        ("\u2066", "U+2066"),
        ("\ufeff", "U+FEFF"),
    ],
)
def test_a_name_has_no_invisible_character(letter, code):
    for changes, field in (
        ({"name": f"ab{letter}c"}, "name"),
        ({"model": f"ab{letter}c"}, "model.name"),
        ({"method": {"name": f"ab{letter}c", "radius": 1}}, "method.name"),
        ({"task": {**ROWS, "name": f"ab{letter}c"}}, "task.name"),
    ):
        error = refused(**changes)
        assert error.field == field
        assert f"{code} at position 3" in error.message


@pytest.mark.parametrize("field", ["prefixes", "ensemble_sizes"])
def test_too_many_sizes_are_refused(field):
    sizes = list(range(1, MAX_POPULATION + 1))
    error = refused(population={"size": MAX_POPULATION, field: sizes})
    assert error.field == f"population.{field}"
    assert error.message == "must have at most 1,000"


def test_a_spec_that_is_too_large_is_refused(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text("#" * 2**19)
    with pytest.raises(InvalidInputError, match="more than 262,144 bytes"):
        load_spec(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"- a list", b"name: {", b"name: 2024-13-45", b"\xff\xfe\xfd", b"name: " + b"[" * 5000],
    ids=["empty", "list", "open", "no date", "no text", "deep"],
)
def test_a_file_that_is_no_spec_is_refused(content, tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_bytes(content)
    gc.collect()  # what earlier tests left would log, where the parser has used up the stack
    with pytest.raises(InvalidInputError) as caught:
        load_spec(path)
    assert "spec.yaml" in str(caught.value)


def test_a_spec_that_is_no_file_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "absent.yaml"):
        with pytest.raises(InvalidInputError):
            load_spec(path)


def test_a_suite_is_no_spec():
    with error_at("spec", "is a suite of experiments .run it with `modnorm suite run`"):
        load_spec("examples/tiny/ablations.yaml")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\na: 2\n", 2),
        ("a: 1\nb:\n  - c: 1\n    d: 2\n    c: 3\n", 5),
        ("{a: 1,\n 'a': 2}", 2),
        ("a: {<<: {b: 1},\n <<: {c: 1}}", 2),
    ],
)
def test_a_key_given_twice_is_refused_with_its_line(text, line):
    for read in (read_yaml, compose_yaml):
        with pytest.raises(ValueError, match=f"line {line}: .* appears twice"):
            read(text)


def test_keys_of_other_mappings_and_of_merged_ones_may_be_the_same():
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: [{x: 1}, {x: 2}]\n1: one\n'1': text\n"
    assert read_yaml(text) == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 3, "y": 2},
        "c": [{"x": 1}, {"x": 2}],
        1: "one",
        "1": "text",
    }


def test_octal_numbers_and_those_in_base_60_are_texts():
    text = "[03, -010, 1:10, 1:10.5, 10, 0x10, 0.5, 1_000, 0]"
    assert read_yaml(text) == ["03", "-010", "1:10", "1:10.5", 10, 16, 0.5, 1000, 0]
    assert parse_spec({**SOUND, "population": {"size": read_yaml("010")}}).population.size == 10
    assert refused(task={**ROWS, "max_tokens": read_yaml("1:10")}).field == "task.max_tokens"
    with pytest.raises(ValueError, match="expected a scalar"):
        read_yaml("!!int [1]")


@pytest.mark.parametrize(
    ("asked", "there", "meant"),
    [
        ("sepc.yaml", "spec.yaml", "spec.yaml"),
        ("spec.yml", "spec.yaml", "spec.yaml"),
        ("spec", "spec.yaml", "spec.yaml"),
        ("nofile.yaml", "afile", None),
        ("spec.yaml", "spec.txt", None),
    ],
)
def test_a_file_of_another_kind_is_not_suggested(asked, there, meant, tmp_path):
    (tmp_path / there).touch()
    with pytest.raises(InvalidInputError) as caught:
        load_spec(tmp_path / asked)
    hint = f"did you mean {meant}?" if meant else "`modnorm init` writes a spec to start from"
    assert caught.value.remedy == hint


def test_json_is_read_exactly():
    content = {"\U0001f600": "two \U0001d465\U0001d466, one \xe9"}
    assert read_yaml(json.dumps(content)) == content
    assert read_yaml(json.dumps(half := ["\ud83d", "\ude00\ud83d"])) == half
