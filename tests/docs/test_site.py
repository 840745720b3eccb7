"""The docs site: navigation, links and references, checked without mkdocs."""

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest
import yaml

from scripts.docs_hooks import GENERATED, name_outside_files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINKED_PAGES = [*PAGES, *sorted(ROOT.glob("*.md"))]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
CODE = re.compile(r"^```.*?^```|^(?: {4}[^\n]*\n)+|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
REFERENCE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


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


def test_every_page_is_in_the_navigation_once():
    pages = [page.relative_to(DOCS).as_posix() for page in PAGES]
    assert sorted(navigation(SITE["nav"])) == sorted([*pages, GENERATED])


@pytest.mark.parametrize("page", LINKED_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page):
    assert broken_links(page) == []


def test_a_broken_link_and_a_broken_anchor_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n\n[a](page.md#one) [b](#two)\n\n    [code](no.md)\n\n"
        "[c](absent.md) [d](https://example.org) `[e](no.md)`\n"
    )
    assert broken_links(page) == ["#two", "absent.md"]


@pytest.mark.parametrize("name", REFERENCE.findall((DOCS / "api/python.md").read_text()))
def test_every_name_of_the_reference_exists(name):
    assert resolve_name(name).__doc__


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("a.md", "[Rules](../SECURITY.md#x)", "Rules (`SECURITY.md`)"),
        ("adr/a.md", "[tiny](../../examples/tiny)", "tiny (`examples/tiny`)"),
        ("adr/a.md", "[glossary](../glossary.md#terms)", "[glossary](../glossary.md#terms)"),
        ("a.md", "[glossary](glossary.md)", "[glossary](glossary.md)"),
    ],
)
def test_only_links_out_of_the_docs_are_replaced(source, text, expected):
    assert name_outside_files(text, source) == expected
