"""Reading of YAML that contains only data and repeats no key.

PyYAML keeps the last of two equal keys, which would silently drop the first.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

import yaml

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
"""A surrogate pair, as JSON escapes characters above U+FFFF; `spec.json` is read as YAML."""

_REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "found character '\\t'": "a tab where YAML takes none; indent with spaces",
        "mapping values are not allowed here": "a second key in one line, or a wrong indent; put "
        "quotes around a text that has a colon",
        "could not find expected ':'": "a key without a colon and a value",
    }
)
"""Plain words for frequent messages of PyYAML, by a part of the message."""


class YamlError(ValueError):
    """A text is no YAML.

    Args:
        fault: The fault, without its place.
        line: Line of the fault, from 1 on; None if it is unknown.
        column: Column of the fault, from 1 on.
    """

    def __init__(self, fault: str, line: int | None = None, column: int | None = None) -> None:
        places = (("line", line), ("column", column))
        place = ", ".join(f"{name} {number}" for name, number in places if number is not None)
        super().__init__(f"{place}: {fault}" if place else fault)
        self.fault = fault
        self.line = line


def read_yaml(text: str) -> object:
    """Return the data of a text.

    Raises:
        YamlError: the text is no YAML, or a key appears twice.
    """
    with _loading(text) as loader:
        content: object = loader.get_single_data()
    return content


def compose_yaml(text: str) -> yaml.Node | None:
    """Return the nodes of a text, with their lines.

    Raises:
        YamlError: as `read_yaml`.
    """
    with _loading(text) as loader:
        tree: yaml.Node | None = loader.get_single_node()
    return tree


def line_of(tree: yaml.Node | None, path: Sequence[int | str]) -> int | None:
    """Return the line of a field, from 1 on.

    Args:
        tree: What `compose_yaml` returned.
        path: Steps from the root to the field. If the field is not written, its nearest section
            that is counts.

    Returns:
        None if not even the first step is written.
    """
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
            _refuse_double_keys(node)
        return node

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        """Join surrogate pairs of JSON."""
        text: str = super().construct_scalar(node)
        return _PAIR.sub(_joined, text)


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
        raise _located(error) from error
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


def _located(error: yaml.MarkedYAMLError) -> YamlError:
    """Return the fault of a text that is no YAML, with its place."""
    mark = error.problem_mark or error.context_mark
    place = () if mark is None else (mark.line + 1, mark.column + 1)
    return YamlError(_words(error), *place)


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


def _refuse_double_keys(node: yaml.MappingNode) -> None:
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue  # the constructor refuses a key that is no scalar
        if (key.tag, key.value) in seen:
            raise YamlError(f"{key.value} appears twice", key.start_mark.line + 1)
        seen.add((key.tag, key.value))
