"""YAML as users write it: data alone, and no key of a mapping twice.

PyYAML takes the last of two keys alike, so that half of what stands in a file would be dropped
without a word.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import yaml

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
"""What JSON writes for a letter beyond the first 65,536: `spec.json` of a run is read as YAML."""


def read_yaml(text: str) -> object:
    """Return what a text holds.

    Raises:
        ValueError: it is no YAML, or a key stands there twice; names the line.
    """
    with _loading(text) as loader:
        content: object = loader.get_single_data()
    return content


def compose_yaml(text: str) -> yaml.Node | None:
    """Return the nodes of a text, which know their lines.

    Raises:
        ValueError: as `read_yaml`.
    """
    with _loading(text) as loader:
        tree: yaml.Node | None = loader.get_single_node()
    return tree


class _Loader(yaml.SafeLoader):
    """Looks at mappings as they are written, before merge keys (`<<`) put others' into them."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.MappingNode):
            _refuse_double_keys(node)
        return node

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        """Join what JSON takes apart."""
        text: str = super().construct_scalar(node)
        return _PAIR.sub(_joined, text)


@contextmanager
def _loading(text: str) -> Iterator[_Loader]:
    """Yield what reads a text; all that it meets in one that is no YAML is a ValueError."""
    try:
        loader = _Loader(text)  # which looks for characters that no YAML has
        try:
            yield loader
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from error
    except (LookupError, AttributeError) as error:
        # PyYAML's own, where a value is not of the tag that it is given: `!!int ''`.
        raise ValueError("a value is not of its tag") from error


def _joined(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")


def _refuse_double_keys(node: yaml.MappingNode) -> None:
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue  # what it holds is no key, which the constructor says
        if (key.tag, key.value) in seen:
            raise ValueError(f"line {key.start_mark.line + 1}: {key.value} stands there twice")
        seen.add((key.tag, key.value))
