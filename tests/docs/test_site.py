"""Links, files and names of the pages are real, checked without mkdocs."""

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest
import yaml

from scripts.docs_hooks import GENERATED, name_outside_files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINKED_PAGES = [*PAGES, *sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("services/*/README.md"))]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
CODE = re.compile(r"^```.*?^```|^(?: {4}[^\n]*\n)+|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
REFERENCE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
FOLDERS = "modnorm|services|verification|benchmarks|tests|examples|scripts|deploy|proto"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]+)`")
DOTTED = re.compile(r"`((?:modnorm|verification|benchmarks)(?:\.[a-z_0-9]+)+)`")
NOT_MODULES = {"modnorm.embedded", "modnorm.unfinished", "modnorm.answer", "modnorm.run"}
"""Two entry points, a field of an HTTP response and a tag of MLflow."""


def navigation(entry):
    """Yield the pages of the navigation in order."""
    if isinstance(entry, str):
        yield entry
    for inner in entry if isinstance(entry, list) else ():
        yield from navigation(inner)
    for inner in entry.values() if isinstance(entry, dict) else ():
        yield from navigation(inner)


def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    words = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"\s", "-", word) for word in words}


def broken_links(page):
    """Return the page's relative links that lead nowhere."""
    broken = []
    for link in LINK.findall(CODE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        target = page if not path else page.parent / path
        if re.match(r"\w+:", link):
            continue
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target)
        ):
            broken.append(link)
    return broken


def exists(name):
    """Return whether a dotted name is a module, or a word in the text of one."""
    for module, word in ((name, ""), (name.rpartition(".")[0], name.rpartition(".")[2])):
        base = ROOT / module.replace(".", "/")
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if file.exists() and re.search(rf"\b{word}", file.read_text()):
                return True
    return False


def test_every_page_is_in_the_navigation_once():
    pages = [page.relative_to(DOCS).as_posix() for page in PAGES]
    assert sorted(navigation(SITE["nav"])) == sorted([*pages, GENERATED])


def test_links_lead_to_files_and_headings_and_named_files_exist():
    faults = {}
    for page in LINKED_PAGES:
        text = page.read_text()
        found = broken_links(page)
        found += [name for name in {*DOTTED.findall(text)} - NOT_MODULES if not exists(name)]
        if page.parent.name != "adr":  # a decision may name files that it removed
            found += [path for path in PATH.findall(text) if not (ROOT / path).exists()]
        if found:
            faults[page.relative_to(ROOT).as_posix()] = found
    assert faults == {}


def test_every_name_of_the_reference_exists():
    for name in REFERENCE.findall((DOCS / "api/python.md").read_text()):
        assert resolve_name(name).__doc__, name


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("a.md", "[Rules](../SECURITY.md#x)", "Rules (`SECURITY.md`)"),
        ("adr/a.md", "[terms](../glossary.md#terms)", "[terms](../glossary.md#terms)"),
    ],
)
def test_only_links_out_of_the_docs_are_replaced(source, text, expected):
    assert name_outside_files(text, source) == expected
