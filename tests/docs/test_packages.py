"""docs/packages.md lists every package, and the imports of each as they are in the code."""

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.test_import_graph import import_graph

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `((?:modnorm|services)\.\w+)` \| .* \| ([^|]*) \|$", re.MULTILINE)
TABLE = dict(ROW.findall((ROOT / "docs/packages.md").read_text()))
ENTRY_POINTS = {"modnorm.__main__", "modnorm.bundled"}
"""`python -m modnorm`, and the folder of bundled files."""


def package_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


@pytest.fixture(scope="module")
def imports() -> Mapping[str, set[str]]:
    """Return the packages that each package imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, imported in import_graph().items():
        if module.startswith(("modnorm.", "services.")):
            package = package_of(module)
            found[package] |= {package_of(each) for each in imported} - {package}
    return found


def test_the_page_lists_every_package(imports: Mapping[str, set[str]]) -> None:
    assert TABLE.keys() == imports.keys() - ENTRY_POINTS


@pytest.mark.parametrize("package", [name for name in TABLE if "library" not in TABLE[name]])
def test_the_page_lists_the_imports_of_a_package(
    imports: Mapping[str, set[str]], package: str
) -> None:
    listed = set(TABLE[package].split(", ")) - {"nothing"}
    assert listed == {each.partition(".")[2] for each in imports[package]}


def test_the_library_imports_no_service_and_a_service_imports_no_client(
    imports: Mapping[str, set[str]],
) -> None:
    for package, imported in imports.items():
        if package.startswith("modnorm."):
            assert not [each for each in imported if each.startswith("services.")]
        elif package != "services.embedded":
            assert "modnorm.client" not in imported
