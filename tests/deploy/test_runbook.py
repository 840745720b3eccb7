"""Settings and alerts in the runbook, checked against the code and the rules."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
RUNBOOK = ROOT / "docs/runbook"
PAGES = sorted(path for path in RUNBOOK.glob("*.md") if path.name != "README.md")
RULES = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
SOURCE = "\n".join(
    path.read_text()
    for folder in ("services", "modnorm")
    for path in sorted((ROOT / folder).rglob("*.py"))
)
SETTING = re.compile(r"MODNORM_([A-Z_]+)")
OUTSIDE = {"GRAFANA_PUBLISH", "KILL_AFTER", "THREADS"}
"""Variables of the compose files."""


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
