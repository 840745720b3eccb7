import asyncio
import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

from modnorm.services.common.settings import EvaluatorSettings, SupervisorSettings
from modnorm.services.evaluator import server
from modnorm.services.evaluator.placement import Place, environment_of
from modnorm.services.evaluator.server import HANGS, EvaluatorService
from modnorm.services.evaluator.supervisor import MAKES_ROOM
from verification.labs.waiting import HANG_SECONDS

WORKER_THAT_ENDS = """
from threading import Thread
from modnorm.services.common.service_process import run_service
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.evaluator.server import EvaluatorService

def build(registry):
    service = EvaluatorService(settings)
    service._thread = Thread(target=print)
    return service

settings = EvaluatorSettings(bind_address="127.0.0.1:0", broker_url="memory://", stop_grace=0)
run_service(settings, build)
"""


def test_a_worker_that_makes_room_ends_with_its_exit_code():
    settings = EvaluatorSettings(bind_address="127.0.0.1:0", broker_url="memory://")
    service = EvaluatorService(settings)
    service._ended_unasked = service._worker._runner.scorer.makes_room = True
    with pytest.raises(SystemExit) as caught:
        asyncio.run(service.stop())
    assert caught.value.code == MAKES_ROOM


def test_a_process_ends_even_if_the_job_of_its_hanging_engine_cannot_be_failed(monkeypatch):
    def fail():
        raise RuntimeError("cannot start a thread")

    codes: list[int] = []
    service = EvaluatorService(
        EvaluatorSettings(bind_address="127.0.0.1:0", broker_url="memory://")
    )
    monkeypatch.setattr(service._worker, "abandon", fail)
    monkeypatch.setattr(os, "_exit", codes.append)
    asyncio.run(service._end_process())
    assert codes == [HANGS]


def test_a_worker_that_ends_unasked_ends_the_process_with_an_error(python_code):
    command = [*python_code, WORKER_THAT_ENDS]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert ended.returncode == 1
    last = json.loads(ended.stderr.splitlines()[-1])
    assert (last["event"], last["level"]) == (
        "ended: the worker ended without a request to stop",
        "critical",
    )


def test_a_worker_that_a_supervisor_starts_ends_with_it(monkeypatch):
    watches = threading.Event()
    monkeypatch.setattr(server, "end_with_supervisor", watches.set)
    monkeypatch.setattr(server, "run_service", lambda *_: None)
    monkeypatch.setattr(server, "end_after", lambda _: None)
    given = environment_of(Place(0, "", 0, 1), SupervisorSettings(), {}, Path("/run"))
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    server.main()
    assert watches.wait(HANG_SECONDS)
