"""Reading of YAML that contains only data and repeats no key.

PyYAML keeps the last of two equal keys, which would silently drop the first.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import yaml

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
"""A surrogate pair, as JSON escapes characters above U+FFFF; `spec.json` is read as YAML."""


def read_yaml(text: str) -> object:
    """Return the data of a text.

    Raises:
        ValueError: the text is no YAML, or a key appears twice; the message names the line.
    """
    with _loading(text) as loader:
        content: object = loader.get_single_data()
    return content


def compose_yaml(text: str) -> yaml.Node | None:
    """Return the nodes of a text, with their lines.

    Raises:
        ValueError: as `read_yaml`.
    """
    with _loading(text) as loader:
        tree: yaml.Node | None = loader.get_single_node()
    return tree


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
    """Yield the loader of a text; convert its errors to ValueError."""
    try:
        loader = _Loader(text)  # refuses characters that YAML does not allow
        try:
            yield loader
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from error
    except (LookupError, AttributeError) as error:
        # PyYAML raises these if a value does not fit its tag: `!!int ''`.
        raise ValueError("a value is not of its tag") from error


def _joined(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")


def _refuse_double_keys(node: yaml.MappingNode) -> None:
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue  # the constructor refuses a key that is no scalar
        if (key.tag, key.value) in seen:
            raise ValueError(f"line {key.start_mark.line + 1}: {key.value} appears twice")
        seen.add((key.tag, key.value))
