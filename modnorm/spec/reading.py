"""Reading specs: all faults become one error, which names the first field."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import ValidationError

from modnorm.errors import InvalidInputError, ModnormError
from modnorm.files import MAX_YAML_BYTES, read_fault, read_text
from modnorm.hints import nearest
from modnorm.spec.experiment import ExperimentSpec
from modnorm.spec.section import Section, first_fault

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
"""A surrogate pair, as JSON escapes characters above U+FFFF; `spec.json` is read as YAML."""

_NOT_DECIMAL = re.compile("[-+]?(0[0-7_]+|[0-9_]+(:[0-9._]+)+)")
"""YAML 1.1 reads 010 as 8, and 1:10 as 70."""

_REMEDIES: Mapping[str, str] = {
    "found character '\\t'": "a tab where YAML takes none; indent with spaces",
    "mapping values are not allowed here": "a second key in one line, or a wrong indent; put "
    "quotes around a text that has a colon",
    "could not find expected ':'": "a key without a colon and a value",
}
"""Plain words for frequent messages of PyYAML, by a part of the message."""


class YamlError(ValueError):
    """A text is no YAML; lines and columns count from 1."""

    def __init__(self, fault: str, line: int | None = None, column: int | None = None) -> None:
        places = (("line", line), ("column", column))
        place = ", ".join(f"{name} {number}" for name, number in places if number is not None)
        super().__init__(f"{place}: {fault}" if place else fault)
        self.fault = fault
        self.line = line


def read_yaml(text: str) -> object:
    """Return the data of a text; a key that appears twice is a `YamlError` too."""
    with _loading(text) as loader:
        content: object = loader.get_single_data()
    return content


def compose_yaml(text: str) -> yaml.Node | None:
    """Return the nodes of a text, with their lines; see `read_yaml`."""
    with _loading(text) as loader:
        tree: yaml.Node | None = loader.get_single_node()
    return tree


def parse_yaml(text: str) -> Iterator[yaml.Event]:
    """Yield the events of a text, before nodes are made of them; see `read_yaml`."""
    with _loading(text):
        yield from yaml.parse(text, Loader=_Loader)


def line_of(tree: yaml.Node | None, path: Sequence[int | str]) -> int | None:
    """Return the line, from 1 on, of a field or its nearest written section, if any."""
    line, node = None, tree
    for step in path:
        child = _child(node, step)
        if child is None:
            break
        line, node = child
    return line


def _child(node: yaml.Node | None, step: int | str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line + 1, node.value[step]
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return key.start_mark.line + 1, value
    return None


class _Loader(yaml.SafeLoader):
    """Checks mappings before merge keys (`<<`) add entries of other mappings."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.MappingNode):
            seen: set[tuple[str, str]] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue  # the constructor refuses a key that is no scalar
                if (key.tag, key.value) in seen:
                    raise YamlError(f"{key.value} appears twice", key.start_mark.line + 1)
                seen.add((key.tag, key.value))
        return node

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        """Join surrogate pairs of JSON."""
        text: str = super().construct_scalar(node)
        return _PAIR.sub(_joined, text)

    def construct_number(self, node: yaml.ScalarNode) -> object:
        """Return a number; the text of a number that is octal or in base 60."""
        text = self.construct_scalar(node)
        if _NOT_DECIMAL.fullmatch(text):
            return text
        is_whole = node.tag.endswith(":int")
        return self.construct_yaml_int(node) if is_whole else self.construct_yaml_float(node)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_number)


@contextmanager
def _loading(text: str) -> Iterator[_Loader]:
    """Yield the loader of a text; convert its errors to `YamlError`."""
    try:
        loader = _Loader(text)  # refuses characters that YAML does not allow
        try:
            yield loader
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = () if mark is None else (mark.line + 1, mark.column + 1)
        raise YamlError(_words(error), *place) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = f"U+{error.character:04X}"
        raise YamlError(f"the character {code} is not allowed in YAML", line) from error
    except RecursionError as error:
        raise YamlError("lists or mappings are nested too deeply") from error
    except yaml.YAMLError as error:
        raise YamlError(str(error)) from error
    except (LookupError, AttributeError) as error:
        # PyYAML raises these if a value does not fit its tag: `!!int ''`.
        raise YamlError("a value does not match its YAML tag") from error


def _words(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or error.context or "unknown fault"
    for sign, words in _REMEDIES.items():
        if sign in problem:
            return words
    problem = f"not YAML: {problem}".replace("'<stream end>'", "the end of the text")
    began, mark = error.context_mark, error.problem_mark
    if began is None or mark is None or began.line == mark.line or error.context is None:
        return problem
    return f"{problem}, {error.context} that begins in line {began.line + 1}"


def _joined(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")


_FILE = "spec"
"""Field of errors about the file itself, whose message names it."""
_INIT = "`modnorm init` writes a spec to start from"
_RUN_SPEC = "spec.json"
"""Name of the spec in a run directory."""

SectionT = TypeVar("SectionT", bound=Section)


def parse_spec(data: Mapping[str, object]) -> ExperimentSpec:
    """Validate a spec as a whole."""
    return parse_section(ExperimentSpec, data)


def parse_section(kind: type[SectionT], data: object, *, field: str | None = None) -> SectionT:
    """Validate a section of a spec, whose path is `field`, or a whole spec; see `parse_spec`."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        start = () if field is None else (field,)
        raise first_fault(kind, error, start, whole=_FILE) from error


def load_spec(path: str | PathLike[str]) -> ExperimentSpec:
    """Read a spec from a YAML file.

    Raises:
        InvalidInputError: the file is missing, is not YAML, has a key twice, or breaks the schema.
    """
    place = Path(path)
    try:
        data = read_yaml(read_text(place, most=MAX_YAML_BYTES))
    except YamlError as error:
        raise yaml_fault(path, error) from error
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"cannot read {path}: {read_fault(error)}", field=_FILE, remedy=_other_file(place)
        ) from error
    if not isinstance(data, dict):
        kind = "is empty" if data is None else "is not a YAML mapping of fields to values"
        raise InvalidInputError(f"{path} {kind}", field=_FILE, remedy=_INIT)
    if {"axes", "seeds"} <= data.keys():
        raise InvalidInputError(
            f"{path} is a suite of experiments",
            field=_FILE,
            remedy="run it with `modnorm suite run`",
        )
    with located(path):
        return parse_spec(data)


def yaml_fault(path: str | PathLike[str], error: YamlError) -> InvalidInputError:
    """Return the error of a file that is no YAML, with its line."""
    fault = InvalidInputError(error.fault)
    fault.place = str(path) if error.line is None else f"{path}:{error.line}"
    return fault


def _other_file(path: Path) -> str | None:
    """Return the remedy for a path that is no spec: the spec in it, or the one nearest to it."""
    spec = path / _RUN_SPEC
    with suppress(OSError):  # a folder that is protected, a name that is too long
        if spec.is_file():
            return f"the spec of this run is {spec}"
        if path.exists():
            return None
        files = [each for each in path.parent.iterdir() if each.is_file()]
        files.sort(key=lambda each: (each.suffix == path.suffix, each.name))
        kinds = {path.suffix, ".yaml", ".yml"}
        names = {each.stem: each.name for each in files if each.suffix in kinds}
        if close := nearest(path.stem, names):
            return f"did you mean {names[close]}?"
    return _INIT


@contextmanager
def located(path: str | PathLike[str]) -> Iterator[None]:
    """Add the file, and the line of the field at fault, to errors about a spec."""
    try:
        yield
    except ModnormError as error:
        if error.field == _FILE:
            raise
        error.place = error.place or place_of(Path(path), error.field or "")
        raise


def place_of(path: Path, field: str) -> str | None:
    """Return `FILE:LINE` of a field, the file if the line is unknown, None if it is no field."""
    try:
        tree = compose_yaml(read_text(path, most=MAX_YAML_BYTES))
    except (OSError, ValueError):
        return str(path)
    steps = [int(step) if step.isdecimal() else step for step in field.split(".")]
    line = line_of(tree, steps)
    if line is None:
        return str(path) if steps[0] in ExperimentSpec.model_fields else None
    return f"{path}:{line}"


def differences(
    old: Mapping[str, object], new: Mapping[str, object]
) -> Mapping[str, tuple[object, object]]:
    """Return the values of the fields that differ, by dotted name in alphabetical order."""
    before, after = dict(leaves(old)), dict(leaves(new))
    names = sorted(before.keys() | after.keys())
    pairs = {name: (before.get(name), after.get(name)) for name in names}
    return {name: (one, other) for name, (one, other) in pairs.items() if one != other}


def leaves(section: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values of a spec by dotted name."""
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
