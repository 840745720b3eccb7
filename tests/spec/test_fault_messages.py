"""Faults of specs in plain words, with file, line and the nearest name."""

import pytest

from modnorm.errors import InvalidInputError
from modnorm.spec import load_spec, located

SOUND = """model: tiny-thicket
task:
  name: countdown
  selection: a.jsonl
  heldout: b.jsonl
method: {name: randopt, radius: 0.1}
population:
  size: 4
"""


@pytest.fixture
def refuse(tmp_path):
    """Change a sound spec; returns the error without the directory."""

    def refuse(old, new):
        path = tmp_path / "s.yaml"
        path.write_text(SOUND.replace(old, new))
        with pytest.raises(InvalidInputError) as caught:
            load_spec(path)
        return str(caught.value).replace(f"{tmp_path}/", "")

    return refuse


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("size: 4", "size: ten", "s.yaml:8: population.size: must be a whole number, not 'ten'"),
        ("size: 4", "size: 0", "s.yaml:8: population.size: must be at least 1"),
        ("size: 4", "size: 200000", "s.yaml:8: population.size: must be at most 100,000"),
        ("size: 4", "size: 1.0e+30", "s.yaml:8: population.size: must be a smaller number"),
        (
            "name: randopt, radius: 0.1}\npopulation:\n  size: 4",
            "name: es}\npopulation:\n  size: 1",
            "s.yaml:8: population.size: must be at least 2",
        ),
        ("radius: 0.1", "radius: big", "s.yaml:6: method.radius: must be a number, not 'big'"),
        ("radius: 0.1", "sigma: -1", "s.yaml:6: method.sigma: must be from 1e-09 to 1e+09"),
        ("radius: 0.1", "sigma: 0", "s.yaml:6: method.sigma: must be given, above 0"),
        ("name: countdown", "name: 3", "s.yaml:3: task.name: must be a text, not 3"),
        ("size: 4", "ensemble_sizes: 4\n  size: 4", "population.ensemble_sizes: must be a list"),
        ("  size: 4", "  seed: 4", "s.yaml:7: population.size: must be given"),
    ],
)
def test_a_wrong_value_is_named_with_file_and_line(refuse, old, new, words):
    assert words in refuse(old, new)


@pytest.mark.parametrize(
    ("old", "new", "field", "meant"),
    [
        ("population:", "populaton:", "s.yaml:7: populaton", "population"),
        ("  heldout:", "  held_out:", "s.yaml:5: task.held_out", "heldout"),
        ("radius: 0.1", "radus: 0.1", "s.yaml:6: method.radus", "radius"),
        ("size: 4", "size: 4\n  pool: nest", "s.yaml:9: population.pool", "nested"),
    ],
)
def test_the_nearest_name_is_offered_for_a_misspelt_one(refuse, old, new, field, meant):
    message = refuse(old, new)
    assert message.startswith(f"{field}: there is no ")
    assert message.endswith(f"(did you mean {meant}?)")
    assert "must be given" not in message


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  size: 4", "\tsize: 4", "s.yaml:8: a tab where YAML takes none"),
        ("0.1}", "0.1", "s.yaml:7: not YAML: expected ',' or '}', but got ':'"),
        ("size: 4\n", "size: [4\n", "that begins in line 8"),
        ("tiny", "tiny: thicket", "s.yaml:1: a second key in one line"),
        ("tiny", "ti\0ny", "s.yaml:1: the character U+0000 is not allowed in YAML"),
    ],
)
def test_what_is_no_yaml_is_one_line_that_names_the_place(refuse, old, new, words):
    message = refuse(old, new)
    assert words in message
    assert "\n" not in message


def test_a_later_fault_of_a_spec_is_located_too(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(SOUND)
    with pytest.raises(InvalidInputError) as caught, located(path):
        raise InvalidInputError("no", field="task.selection.source")
    assert caught.value.place == f"{path}:4"
    with pytest.raises(InvalidInputError) as caught, located(path):
        raise InvalidInputError("no", field="engine.name")
    assert caught.value.place == str(path)
    with pytest.raises(InvalidInputError) as caught, located(path):
        raise InvalidInputError("is an option", field="radii")
    assert caught.value.place is None
