"""Files and modules that the documentation names exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("services/*/README.md")])
FOLDERS = "modnorm|services|verification|benchmarks|tests|examples|scripts|deploy|proto"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]+)`")
DOTTED = re.compile(r"`((?:modnorm|verification|benchmarks)(?:\.[a-z_0-9]+)+)`")
NOT_MODULES = {
    "modnorm.embedded",
    "modnorm.unfinished",
    "modnorm.evaluate",
    "modnorm.experiment",
    "modnorm.answer",
}
"""Two entry points, the task of the queue, a tag of MLflow and a field of an HTTP response."""


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
