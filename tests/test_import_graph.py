"""Modules import each other in no circle, and dependencies point to the library."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("modnorm", "modnorm/services", "verification", "benchmarks", "examples")


def modules() -> Mapping[str, Path]:
    """Return all modules by name; a package is its `__init__`."""
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


def imported_names(path: Path) -> Iterator[str]:
    """Yield what a module imports anywhere in its text, the imported names too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, f"{path} has a relative import"
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


@cache
def import_graph() -> Mapping[str, frozenset[str]]:
    """Return the modules that each module imports."""
    known = modules()
    graph = {}
    for module, path in known.items():
        names = imported_names(path)
        targets = {name if name in known else name.rpartition(".")[0] for name in names}
        graph[module] = frozenset(targets & known.keys() - {module})
    return graph


def test_no_modules_import_each_other_in_a_circle() -> None:
    TopologicalSorter(import_graph()).prepare()


def test_the_library_imports_no_service_and_a_service_imports_no_client() -> None:
    for module, imported in import_graph().items():
        if module.startswith("modnorm.services"):
            if module != "modnorm.services.embedded":
                assert not [each for each in imported if each.startswith("modnorm.client")], module
        elif module.startswith("modnorm"):
            assert not [each for each in imported if each.startswith("modnorm.services")], module


def test_a_spec_is_checked_without_torch() -> None:
    """Its import takes ten seconds on two cores, and a wrong spec is refused within one."""
    code = "import sys, modnorm.engines, modnorm.spec_checks; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
