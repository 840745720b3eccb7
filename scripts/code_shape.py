"""Print the shape of the code: lines and modules by package, and how the modules hang together.

    python -m scripts.code_shape [--depth 2]

Counted are the Python files that git tracks, without `tests/` and the generated `modnorm/v1/`
(docs/adr/0014-a-third-smaller.md). A module is small with fewer than 50 lines. Small modules and
modules with one importer are counted without packages' `__init__` and `__main__`.
"""

import argparse
import ast
import statistics
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SMALL_LINES = 50
LONG_FUNCTION = 60


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file."""

    path: Path
    lines: int
    imports: frozenset[str]
    """Modules, or names in modules, that it imports anywhere."""
    functions: tuple[int, ...]
    """Lines of each function."""

    @property
    def name(self) -> str:
        """Its name in imports; that of the package for `__init__`."""
        name = ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")
        # The link modnorm/services.
        return f"modnorm.{name}" if self.path.is_relative_to("services") else name

    @property
    def is_entry(self) -> bool:
        """Whether it stands for a package."""
        return self.path.stem in {"__init__", "__main__"}


def modules() -> list[Module]:
    """Return the counted modules, in the order of their paths."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    counted = (Path(path) for path in listed if not path.startswith(("tests/", "modnorm/v1/")))
    return [_module(path) for path in counted if path.exists()]


def _module(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    functions = tuple(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return Module(path, len(text.splitlines()), frozenset(_imports(nodes)), functions)


def _imports(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def single_importers(counted: Sequence[Module]) -> Mapping[str, str]:
    """Return the modules that exactly one other module imports, each with that module."""
    names = {module.name for module in counted}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for module in counted:
        for name in module.imports:
            target = name if name in names else name.rpartition(".")[0]
            if target != module.name:
                importers[target].add(module.name)
    return {
        module.name: next(iter(importers[module.name]))
        for module in counted
        if len(importers[module.name]) == 1 and not module.is_entry
    }


def package(module: Module, depth: int) -> str:
    """Return the folder of a module, at most `depth` levels deep."""
    return "/".join(module.path.parent.parts[:depth]) or "."


def table(counted: Sequence[Module], depth: int) -> Iterator[str]:
    """Yield the lines of the table by package in Markdown."""
    yield "| package | lines | modules | under 50 lines | one importer |"
    yield "|---|---:|---:|---:|---:|"
    single = single_importers(counted)
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for module in counted:
        found = {
            "lines": module.lines,
            "modules": 1,
            "small": module.lines < SMALL_LINES and not module.is_entry,
            "single": module.name in single,
        }
        for place in (f"`{package(module, depth)}`", "all"):
            rows[place].update(found)
    for place in sorted(rows, key=lambda name: (name == "all", -rows[name]["lines"])):
        figures = (f"{rows[place][name]:,}" for name in ("lines", "modules", "small", "single"))
        yield f"| {place} | {' | '.join(figures)} |"


def main() -> None:
    """Print the table and the lengths of functions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--depth", type=int, default=2, help="levels of folders in the table")
    options = parser.parse_args()
    counted = modules()
    print("\n".join(table(counted, options.depth)))
    lengths = [length for module in counted for length in module.functions]
    ninth = statistics.quantiles(lengths, n=10)[-1]
    print(
        f"\n{len(lengths):,} functions, lines: median {statistics.median(lengths):g}, "
        f"90th percentile {ninth:g}, over {LONG_FUNCTION}: "
        f"{sum(length > LONG_FUNCTION for length in lengths)}"
    )


if __name__ == "__main__":
    main()
