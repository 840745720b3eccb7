"""Modules that the documentation names exist, and the services' READMEs list every module."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("services/*/README.md")]
)
FOLDERS = "modnorm|services|verification|benchmarks|tests|examples|scripts|deploy|proto"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]+)`")
DOTTED = re.compile(r"`((?:modnorm|services|verification|benchmarks)(?:\.[a-z_0-9]+)+)`")
NOT_MODULES = {
    "modnorm.embedded",
    "modnorm.unfinished",
    "modnorm.evaluate",
    "modnorm.experiment",
    "modnorm.answer",
}
"""Two entry points, the task of the queue, a tag of MLflow and a field of an HTTP response."""
AGGREGATOR = ROOT / "services/aggregator"


def exists(path: str) -> bool:
    return (ROOT / path.rstrip("/")).exists()


def is_module(name: str) -> bool:
    """Return whether a dotted name is a module, or a name in the text of one."""
    path = name.replace(".", "/")
    if exists(path) or exists(f"{path}.py"):
        return True
    module, _, attribute = name.rpartition(".")
    file = ROOT / f"{module.replace('.', '/')}.py"
    package = ROOT / module.replace(".", "/") / "__init__.py"
    sources = [source.read_text() for source in (file, package) if source.exists()]
    return any(re.search(rf"\b{attribute}\b", source) for source in sources)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_existing_files_and_modules(page: Path) -> None:
    text = page.read_text()
    assert [path for path in PATH.findall(text) if not exists(path)] == []
    names = set(DOTTED.findall(text)) - NOT_MODULES
    assert [name for name in sorted(names) if not is_module(name)] == []


def modules(service: str) -> Sequence[str]:
    """Return the modules of a service as paths below it, without packages and migrations."""
    folder = ROOT / "services" / service
    files = [path.relative_to(folder) for path in sorted(folder.rglob("*.py"))]
    return [
        str(path.with_suffix(""))
        for path in files
        if path.stem != "__init__" and "migrations" not in path.parts
    ]


@pytest.mark.parametrize("service", ["aggregator", "evaluator", "trainer"])
def test_a_readme_lists_every_module_of_its_service(service: str) -> None:
    text = (ROOT / "services" / service / "README.md").read_text()
    listed = set(re.findall(r"`(?:\w+/)*(\w+)(?:\.py)?`", text))
    assert [path for path in modules(service) if Path(path).name not in listed] == []


def reading_order() -> Iterator[str]:
    """Yield the modules of the aggregator in the order of its README."""
    package = ""
    for line in (AGGREGATOR / "README.md").read_text().splitlines():
        if heading := re.match(r"`(\w+)/`:", line):
            package = f"{heading[1]}/"
        elif row := re.match(r"\| `(\w+)\.py` \|", line):
            yield package + row[1]
        elif re.match(r"`\w+\.py`", line):
            yield from re.findall(r"`(\w+)\.py`", line)


def imports(module: str) -> Iterator[str]:
    """Yield the modules of the aggregator that one of them imports."""
    tree = ast.parse((AGGREGATOR / f"{module}.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                yield name.removeprefix("services.aggregator.").replace(".", "/")


def test_a_module_of_the_aggregator_imports_only_modules_above_it_in_the_readme() -> None:
    order = list(reading_order())
    assert sorted(order) == sorted(modules("aggregator"))
    below = [
        (module, imported)
        for place, module in enumerate(order)
        for imported in imports(module)
        if imported in order[place + 1 :]
    ]
    assert below == []


def test_the_glossary_is_in_alphabetical_order() -> None:
    lines = (ROOT / "docs/glossary.md").read_text().splitlines()
    terms = [line.split("|")[1] for line in lines if line.startswith("| ")][1:]
    keys = [re.sub(r"[`*(),]", "", term).strip().lower() for term in terms]
    assert keys == sorted(keys)
