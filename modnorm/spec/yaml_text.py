"""YAML as users write it: data alone, and no key of a mapping twice.

PyYAML takes the last of two keys alike, so that half of what stands in a file would be dropped
without a word.
"""

import yaml


def read_yaml(text: str) -> object:
    """Return what a text holds.

    Raises:
        ValueError: it is no YAML, or a key stands there twice; names the line.
    """
    loader = _Loader(text)
    try:
        content: object = loader.get_single_data()
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from error
    finally:
        loader.dispose()
    return content


def compose_yaml(text: str) -> yaml.Node | None:
    """Return the nodes of a text, which know their lines.

    Raises:
        ValueError: as `read_yaml`.
    """
    loader = _Loader(text)
    try:
        tree: yaml.Node | None = loader.get_single_node()
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from error
    finally:
        loader.dispose()
    return tree


class _Loader(yaml.SafeLoader):
    """Looks at mappings as they are written, before merge keys (`<<`) put others' into them."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.MappingNode):
            _refuse_double_keys(node)
        return node


def _refuse_double_keys(node: yaml.MappingNode) -> None:
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue  # what it holds is no key, which the constructor says
        if (key.tag, key.value) in seen:
            raise ValueError(f"line {key.start_mark.line + 1}: {key.value} stands there twice")
        seen.add((key.tag, key.value))
