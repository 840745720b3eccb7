"""Provisioned files of Prometheus and Grafana, checked against the services' metrics."""

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from modnorm.services.aggregator.lab_status import LabCountStore
from modnorm.services.aggregator.metrics import AggregatorMetrics, LabCollector
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.common.metrics import CallMetrics
from modnorm.services.evaluator.metrics import EvaluatorMetrics
from modnorm.services.sandbox.servicer import SandboxMetrics
from modnorm.serving.api_errors import ServerMetrics
from verification.labs.servers import free_port
from verification.labs.waiting import wait_until

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy/grafana/dashboards/modnorm.json").read_text())
RULES = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())
PROMETHEUS = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
COMPOSE = yaml.safe_load((ROOT / "compose.observability.yaml").read_text())
UNIT_TESTS = "tests/deploy/rules_test.yml"
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
SERVICES = ("aggregator", "calibrator", "sampler", "sandbox", "evaluator")
SERVED = {"route", "status"}
"""Labels of `modnorm serve`: addresses and HTTP statuses."""
SHOWN = {
    "aggregator": "modnorm_database_up 1.0",
    "evaluator": "modnorm_evaluator_busy 0.0",
    "sandbox": "modnorm_sandbox_isolated 1.0",
}
"""What a service shows last, once it is up."""


@pytest.fixture(scope="module")
def families(tmp_path_factory):
    """All metrics of the code, including those of idle processes."""
    database = Database(f"sqlite:///{tmp_path_factory.mktemp('lab')}/modnorm.db")
    database.migrate()
    registry = CollectorRegistry()
    AggregatorMetrics(registry)
    EvaluatorMetrics(registry)
    SandboxMetrics(registry)
    CallMetrics(registry)
    registry.register(LabCollector(LabCountStore(database, lease_seconds=60)))
    served = text_string_to_metric_families(ServerMetrics().text().decode())
    yield [*registry.collect(), *served]
    database.close()


def expressions():
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for group in RULES["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]


def used():
    return {name for text in expressions() for name in re.findall(r"modnorm_\w+", text)}


def series(family):
    return {family.name + suffix for suffix in SUFFIXES[family.type]}


def test_everything_that_is_shown_exists(families):
    assert used() <= set().union(*map(series, families))


def test_everything_that_is_documented_exists(families):
    pages = [ROOT / "docs/observability.md", *(ROOT / "docs/runbook").glob("*.md")]
    known = set().union(*map(series, families))
    for page in pages:
        named = set(re.findall(r"modnorm_[a-z_]+", page.read_text()))
        assert {name for name in named if name.rstrip("_") != "modnorm"} <= (
            known | {family.name for family in families if family.type == "histogram"}
        ), page


def test_no_label_is_an_id(families):
    labels = {label for family in families for one in family.samples for label in one.labels}
    allowed = {"state", "split", "kind", "phase", "outcome", "verdict", "device", "le"} | SERVED
    assert labels <= allowed


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool")
@pytest.mark.parametrize(
    "command",
    [("check", "rules", "deploy/prometheus/rules.yml"), ("test", "rules", UNIT_TESTS)],
    ids=["check", "test"],
)
def test_promtool_accepts_the_rules_and_their_tests(command):
    ended = subprocess.run(
        ["promtool", *command], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_service_is_scraped_where_it_shows_its_metrics():
    jobs = {job["job_name"] for job in PROMETHEUS["scrape_configs"]}
    shown = {
        name: service["environment"]["MODNORM_METRICS_ADDRESS"]
        for name, service in COMPOSE["services"].items()
        if "MODNORM_METRICS_ADDRESS" in service.get("environment", {})
    }
    assert jobs - {"serve"} == shown.keys() == set(SERVICES)
    text = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
    assert set(shown.values()) == {"0.0.0.0:9464"}
    assert set(re.findall(r":(\d{4})\"\]\}\]", text)) == {"9464"}


def test_processes_show_their_metrics(start_module, tmp_path):
    with ExitStack() as stack:
        addresses = {name: started(name, tmp_path, start_module, stack) for name in SHOWN}
        texts = {name: read(address, SHOWN[name]) for name, address in addresses.items()}
    assert 'modnorm_experiments{state="PENDING"} 0.0' in texts["aggregator"]
    assert all("modnorm_grpc_calls" in text for text in texts.values())


def started(name, folder, start_module, stack):
    """Start a service; return the address of its metrics."""
    address = f"127.0.0.1:{free_port()}"
    environment = {key: value for key, value in os.environ.items() if "MODNORM" not in key} | {
        "MODNORM_BIND_ADDRESS": "127.0.0.1:0",
        "MODNORM_METRICS_ADDRESS": address,
        "MODNORM_DATABASE_URL": f"sqlite:///{folder}/modnorm.db",
        "MODNORM_BROKER_URL": "memory://",
        "MODNORM_STOP_GRACE": "0",
    }
    process = start_module(f"modnorm.services.{name}.server", environment=environment).process
    stack.callback(process.wait)
    stack.callback(process.send_signal, signal.SIGTERM)
    return address


def read(address, last):
    """Return the metrics once the last of them exists."""

    def text():
        url = f"http://{address}/metrics"
        with suppress(urllib.error.URLError), urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read().decode()
        return ""

    wait_until(lambda: last in text(), f"metrics of {address}", pause=0.2)
    return text()
