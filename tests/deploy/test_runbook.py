"""Log lines and settings in the runbook, checked against the code."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RUNBOOK = ROOT / "docs/runbook"
PAGES = sorted(path for path in RUNBOOK.glob("*.md") if path.name != "README.md")
RULES = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
FOREIGN = {"Couldn't ack", "CUDA out of memory", "No space left on device"}
"""Messages of Celery, torch and the operating system."""
COMPOSED = {"attempt candidate: ", "attempt infrastructure: ", "attempt fatal: "} | {
    "attempt released: ",
    "experiment is FAILED",
    " could not answer the held-out rows: ",
}
"""Composed of a stored value and a text in the code."""
SOURCE = "\n".join(
    path.read_text()
    for folder in ("services", "modnorm")
    for path in sorted((ROOT / folder).rglob("*.py"))
)
LOG = re.compile(r"^- log, (?:[^\n]|\n  )*", re.MULTILINE)
CELL = re.compile(r"^\| (?=`)[^|]*", re.MULTILINE)
"""The first cell of a row that begins with a quotation."""
SETTING = re.compile(r"MODNORM_([A-Z_]+)")
OUTSIDE = {"GRAFANA_PUBLISH", "KILL_AFTER", "THREADS"}
"""Variables of the compose files."""


def quoted(page):
    """Yield the constant parts of the log lines and reasons that a page quotes."""
    content = page.read_text()
    for place in [*LOG.findall(content), *CELL.findall(content)]:
        for text in re.findall(r"`([^`]+)`", place.replace("\n  ", " ")):
            if " " in text:
                yield from (part for part in re.split(r"\.\.\.|NAME", text) if len(part) > 6)


def test_quotations_are_found():
    assert len({text for page in PAGES for text in quoted(page)}) > 25


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_quotation_is_written_by_the_code(page):
    for text in set(quoted(page)) - FOREIGN - COMPOSED:
        words = [word for word in re.split(r"', |'", text) if len(word) > 6]
        assert all(word.strip(" ,;:") in SOURCE for word in words), text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_has_its_parts_and_is_in_the_index(page):
    text = page.read_text()
    assert "**Lost" in text
    assert f"]({page.name})" in (RUNBOOK / "README.md").read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (RUNBOOK / target).exists(), target


def test_every_setting_exists():
    documents = [*RUNBOOK.glob("*.md"), ROOT / "docs/observability.md"]
    for document in documents:
        for name in set(SETTING.findall(document.read_text())) - OUTSIDE:
            assert re.search(rf"^    {name.lower()}: ", SOURCE, re.MULTILINE), name


def test_every_alert_has_a_page_that_names_it():
    for rule in ALERTS:
        page = RUNBOOK / rule["annotations"]["runbook"]
        assert f"`{rule['alert']}`" in page.read_text()
    named = {name for page in PAGES for name in re.findall(r"^Alerts?: (.*)", page.read_text())}
    assert {name for text in named for name in re.findall(r"`(\w+)`", text)} <= {
        rule["alert"] for rule in ALERTS
    }
