import json
import os
import signal
import socket
import subprocess
import sys
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from modnorm.services.common.healthcheck import check
from modnorm.services.common.service_process import REPEAT_SECONDS, ServiceThread
from verification.labs.servers import free_port
from verification.labs.waiting import wait_until

SERVICE = "modnorm.v1.ExperimentService"


@pytest.fixture
def aggregator(start_module, tmp_path):
    """An aggregator as a process, and its address."""
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "MODNORM_BIND_ADDRESS": address,
        "MODNORM_DATABASE_URL": f"sqlite:///{tmp_path}/modnorm.db",
        "MODNORM_BROKER_URL": "memory://",
    }
    process = start_module(
        "modnorm.services.aggregator.server", environment={**os.environ, **settings}
    )
    wait_until(
        lambda: process.has_ended() or check(address, SERVICE, timeout=1) == "SERVING",
        "the service serves",
    )
    yield process, address
    process.process.kill()


def test_lines_at_debug_are_those_of_the_services_not_of_each_call_in_a_library():
    program = """
import logging
from modnorm.services.common.logging import configure_logging

configure_logging("DEBUG")
for name in ("grpc._cython.cygrpc", "matplotlib.font_manager", "modnorm.services.aggregator"):
    logging.getLogger(name).debug("called")
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = map(json.loads, ended.stderr.splitlines())
    assert [line["logger"] for line in lines] == ["modnorm.services.aggregator"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_stops_gracefully_and_logs_json(aggregator, number):
    process, address = aggregator
    command = [sys.executable, "-m", "modnorm.services.common.healthcheck", address]
    known, unknown = (
        subprocess.run([*command, name], check=False, capture_output=True, text=True)
        for name in (SERVICE, "x")
    )
    assert (known.returncode, known.stdout) == (0, f"{address}: SERVING\n")
    assert (unknown.returncode, unknown.stderr) == (1, f"{address}: NOT_FOUND\n")
    process.process.send_signal(number)
    ended = process.finish()
    assert ended.returncode == 0
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    listening, stopping = (
        line
        for line in lines
        if line["logger"] == "modnorm.services.common.service_process"
        and line["event"] != "observed"
    )
    assert [listening["event"], stopping["event"]] == ["listening", "stopping"]
    assert {"level", "logger", "timestamp"} <= stopping.keys()
    assert str(listening["port"]) in address


def test_a_second_signal_ends_a_service_that_cannot_stop(start_module, tmp_path):
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "MODNORM_BIND_ADDRESS": address,
        "MODNORM_CACHE_DIR": str(tmp_path),
        "MODNORM_STOP_GRACE": "3600",
    }
    process = start_module("modnorm.services.sampler.server", environment=os.environ | settings)
    wait_until(lambda: check(address, timeout=1) == "SERVING", "the service serves")
    with grpc.insecure_channel(address) as channel:
        watched = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        statuses = (each.status for each in watched)
        assert next(statuses) == health_pb2.HealthCheckResponse.SERVING
        for _ in range(2):  # as `timeout` sends it
            process.process.send_signal(signal.SIGTERM)
        assert next(statuses) == health_pb2.HealthCheckResponse.NOT_SERVING
        time.sleep(2 * REPEAT_SECONDS)
        assert not process.has_ended()
        assert process.interrupt(signal.SIGTERM) != 0


def test_a_database_that_does_not_answer_ends_the_aggregator_with_a_remedy(start_module):
    settings = {
        "MODNORM_BIND_ADDRESS": "127.0.0.1:0",
        "MODNORM_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
        "MODNORM_BROKER_URL": "memory://",
    }
    ended = start_module(
        "modnorm.services.aggregator.server", environment=os.environ | settings
    ).finish()
    assert ended.returncode == 1
    (line,) = (json.loads(each) for each in ended.stderr.splitlines() if "did not answer" in each)
    assert line["level"] == "critical"
    assert "Connection refused Is the server running" in line["event"]
    assert line["event"].endswith("(start the database, or correct MODNORM_DATABASE_URL)")
    assert "Traceback" not in ended.stderr


def test_a_start_that_fails_half_way_ends_the_process_with_its_reason_last(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = {
            "MODNORM_BIND_ADDRESS": "127.0.0.1:0",
            "MODNORM_PAGE_ADDRESS": f"127.0.0.1:{taken.getsockname()[1]}",
            "MODNORM_DATABASE_URL": f"sqlite:///{tmp_path}/modnorm.db",
            "MODNORM_BROKER_URL": "memory://",
        }
        command = [sys.executable, "-m", "modnorm.services.aggregator.server"]
        environment = os.environ | settings
        ended = subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True
        )
    assert ended.returncode == 1
    last = json.loads(ended.stderr.splitlines()[-1])
    assert last["level"] == "critical"
    assert "MODNORM_PAGE_ADDRESS: cannot listen on" in last["event"]


class Idle(ServiceThread[None]):
    async def _start(self, stack):
        """Start nothing."""


def test_a_stop_while_the_loop_closes_in_another_thread_is_no_error(monkeypatch):
    services = Idle()
    services._loop.close()
    monkeypatch.setattr(services._loop, "is_closed", lambda: False)  # as `stop` may have seen it
    services.stop()
