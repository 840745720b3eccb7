"""YAML that repeats no key."""

import json

import pytest

from modnorm.spec import compose_yaml, read_yaml


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


def test_json_is_read_exactly():
    content = {"\U0001f600": "two \U0001d465\U0001d466, one \xe9"}
    assert read_yaml(json.dumps(content)) == content
    assert read_yaml(json.dumps(half := ["\ud83d", "\ude00\ud83d"])) == half


@pytest.mark.parametrize(
    "text", ["a: \0", "\x1b", "a: !!int ''", "a: !!bool x", "a: !!timestamp x"]
)
def test_what_no_yaml_has_is_no_yaml(text):
    with pytest.raises(ValueError, match=r"not allowed|not match its YAML tag"):
        read_yaml(text)
