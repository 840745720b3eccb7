"""Real processes under a real supervisor; the devices are only names."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from modnorm.errors import EngineError, ModnormError
from modnorm.services.common.healthcheck import check
from modnorm.services.common.settings import SupervisorSettings
from modnorm.services.evaluator import aggregator_client, supervisor, worker
from modnorm.services.evaluator.placement import CONTROL
from modnorm.services.evaluator.server import HANGS
from modnorm.services.evaluator.supervisor import COMMAND, MAKES_ROOM, Supervisor
from verification.labs.waiting import HANG_SECONDS, wait_until

STUB = """
import asyncio, os, sys
from pathlib import Path
from modnorm.services.common.service_process import run_service
from modnorm.services.common.server import GrpcService
from modnorm.services.common.settings import EvaluatorSettings

settings = EvaluatorSettings()
Path(sys.argv[1], os.environ.get("CUDA_VISIBLE_DEVICES", "none")).write_text(
    f"{os.getpid()} {settings.worker_name} {settings.metrics_address}"
)
own = settings.model_copy(update={"metrics_address": ""})
run_service(own, lambda _: GrpcService(own, lambda _: ()))
"""
"""A worker without an engine: it records its name, serves, and stops on a signal."""


@asynccontextmanager
async def running(devices, command, limits=None, **changes):
    settings = SupervisorSettings(bind_address="127.0.0.1:0", stop_grace=0.5, **changes)
    supervisor = Supervisor(settings, devices, **(limits or {}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("modnorm.services.evaluator.supervisor.COMMAND", command)
        await supervisor.start()
        try:
            yield supervisor
        finally:
            await supervisor.stop()


async def until(condition, what):
    await asyncio.to_thread(wait_until, condition, what)


def notes(folder):
    return {path.name: path.read_text().split() for path in folder.iterdir()}


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def gone(pid):
    """Return whether a process has ended, including a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # it may end before it is read
        return True
    return state == "Z"


def shares(folder):
    return {name: float(note[1]) for name, note in notes(folder).items() if len(note) == 2}


@pytest.fixture
def stub(python_code, tmp_path):
    return (*python_code, STUB, str(tmp_path))


def serving(supervisor):
    return lambda: check(f"127.0.0.1:{supervisor.port}") == "SERVING"


async def test_each_device_has_a_worker_and_all_of_them_make_it_healthy(
    tmp_path, stub, monkeypatch
):
    monkeypatch.setattr("modnorm.services.evaluator.supervisor.CHECK_SECONDS", 1.0)
    changes = {"worker_name": "host", "metrics_address": "127.0.0.1:9100"}
    async with running(("0", "1", "GPU-7"), stub, **changes) as supervisor:
        await until(serving(supervisor), "serving")
        noted = notes(tmp_path)
        assert {device: note[1:] for device, note in noted.items()} == {
            "0": ["host-0", "127.0.0.1:9100"],
            "1": ["host-1", "127.0.0.1:9101"],
            "GPU-7": ["host-GPU-7", "127.0.0.1:9102"],
        }
        os.kill(int(noted["1"][0]), signal.SIGSTOP)
        await until(lambda: not serving(supervisor)(), "a worker that hangs shows")
        os.kill(int(noted["1"][0]), signal.SIGCONT)
        await until(serving(supervisor), "serving again")
    assert not any(alive(int(note[0])) for note in noted.values())


async def test_workers_are_watched_while_the_file_of_the_token_is_replaced(
    tmp_path, stub, monkeypatch
):
    monkeypatch.setattr("modnorm.services.evaluator.supervisor.CHECK_INTERVAL", 0.05)
    token = tmp_path / "token"
    token.write_text("secret")
    folder = tmp_path / "notes"
    folder.mkdir()
    monkeypatch.setenv("MODNORM_TOKEN_FILE", str(token))
    async with running(("0",), (*stub[:-1], str(folder))) as supervisor:
        await until(serving(supervisor), "serving")
        token.unlink()
        await asyncio.sleep(1.0)
        token.write_text("another")
        os.kill(int(notes(folder)["0"][0]), signal.SIGKILL)
        await until(lambda: not serving(supervisor)(), "a worker that ended shows")


async def test_child_processes_end_with_their_worker(tmp_path):
    parent = (
        "import os, subprocess, sys, time; from pathlib import Path;"
        "rank = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        "Path(sys.argv[1], str(os.getpid())).write_text(str(rank.pid)); time.sleep(600)"
    )
    async with running((), (sys.executable, "-c", parent, str(tmp_path))):
        await until(lambda: [*notes(tmp_path).values()][:1] not in ([], [[]]), "its rank")
        ((worker, (rank,)),) = notes(tmp_path).items()
        os.kill(int(worker), signal.SIGKILL)
        await until(lambda: gone(int(rank)), "the end of the rank")


async def test_fewer_workers_run_if_a_model_does_not_fit_its_share(tmp_path):
    crowded = (
        "import os, sys, time; from pathlib import Path;"
        "share = os.environ['MODNORM_GPU_MEMORY_UTILIZATION'];"
        "slot = os.environ['MODNORM_WORKER_NAME'];"
        "Path(sys.argv[1], slot).write_text(f'{os.getpid()} {share}');"
        "sys.exit(76) if slot == 'host-0.1' and float(share) < 0.3 else time.sleep(600)"
    )
    changes = {"worker_name": "host", "engines_per_gpu": "4"}
    command = (sys.executable, "-c", crowded, str(tmp_path))
    async with running(("0",), command, **changes):
        await until(lambda: shares(tmp_path).get("host-0.1") == 0.3, "fewer workers")
        await until(lambda: shares(tmp_path).get("host-0.2") == 0.3, "all of them anew")
        await until(lambda: all(notes(tmp_path).values()), "whole notes")
        started = [pid for pid, _ in notes(tmp_path).values()]
    assert all(gone(int(pid)) for pid in started)


async def test_a_killed_worker_is_restarted(tmp_path, stub):
    async with running(("0", "1"), stub) as supervisor:
        await until(serving(supervisor), "serving")
        before = notes(tmp_path)
        os.kill(int(before["0"][0]), signal.SIGKILL)
        await until(lambda: notes(tmp_path)["0"] != before["0"], "a new worker")
        await until(serving(supervisor), "serving again")
        assert notes(tmp_path)["1"] == before["1"]


async def test_a_worker_that_stops_before_its_first_answer_is_restarted(tmp_path, monkeypatch):
    """The time limit for imports ends when the worker listens."""
    monkeypatch.setattr("modnorm.services.evaluator.supervisor.CHECK_SECONDS", 0.5)
    silent = (
        "import os, socket, sys, time; from pathlib import Path;"
        "address = os.environ['MODNORM_BIND_ADDRESS'].removeprefix('unix:');"
        "Path(address).unlink(missing_ok=True); door = socket.socket(socket.AF_UNIX);"
        "door.bind(address); door.listen();"
        "Path(sys.argv[1], str(os.getpid())).touch(); time.sleep(600)"
    )
    command = (sys.executable, "-c", silent, str(tmp_path))
    async with running((), command, silence_seconds=0.1):
        await until(lambda: len(notes(tmp_path)) > 1, "a new worker")


def test_a_worker_does_not_outlive_its_supervisor(python_code, tmp_path):
    """A killed supervisor still closes the pipe."""
    program = (
        "import threading; from modnorm.services.evaluator.server import end_with_supervisor;"
        f"threading.Thread(target=end_with_supervisor, daemon=True).start();{STUB}"
    )
    environment = os.environ | {"MODNORM_BIND_ADDRESS": "127.0.0.1:0"}
    command = [*python_code, program, str(tmp_path)]
    path = tmp_path / "log"
    with (
        path.open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log, env=environment) as worker,
    ):
        # Before it listens, a signal ends it without a graceful stop.
        asyncio.run(until(lambda: '"listening"' in path.read_text(), "a worker that listens"))
        assert worker.poll() is None
        worker.communicate(timeout=HANG_SECONDS)
        assert worker.returncode == 0


def test_a_worker_ends_before_its_supervisor_with_its_own_exit_code(python_code):
    program = (
        "import sys, threading, time;"
        "from modnorm.services.evaluator.server import end_with_supervisor;"
        "threading.Thread(target=end_with_supervisor, daemon=True).start();"
        f"time.sleep(0.3); sys.exit({MAKES_ROOM})"
    )
    with subprocess.Popen([*python_code, program], stdin=subprocess.PIPE) as worker:
        assert worker.wait(HANG_SECONDS) == MAKES_ROOM


def test_a_worker_that_does_not_stop_is_killed_after_its_supervisor(python_code):
    program = (
        "import signal, threading, time; from modnorm.services.evaluator import server;"
        "server.STOP_SECONDS = server.CHECK_INTERVAL = 0.1;"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "threading.Thread(target=server.end_with_supervisor, daemon=True).start();"
        "time.sleep(600)"
    )
    with subprocess.Popen([*python_code, program], stdin=subprocess.PIPE) as worker:
        worker.communicate(timeout=HANG_SECONDS)
        assert worker.returncode in {HANGS, -signal.SIGKILL}


async def test_a_worker_that_does_not_stop_is_killed(tmp_path):
    deaf = (
        "import os, signal, sys, time; from pathlib import Path;"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "Path(sys.argv[1], 'deaf').write_text(str(os.getpid())); time.sleep(600)"
    )
    limit = {"stop_seconds": 0.5}
    async with running((), (sys.executable, "-c", deaf, str(tmp_path)), limit):
        await until(lambda: notes(tmp_path).get("deaf"), "the worker's note")
    assert not alive(int(notes(tmp_path)["deaf"][0]))


async def test_a_second_signal_reaches_the_workers(tmp_path):
    slow = (
        "import signal, sys; from pathlib import Path; folder = Path(sys.argv[1]);"
        "signals = {signal.SIGTERM, signal.SIGINT};"
        "signal.pthread_sigmask(signal.SIG_BLOCK, signals); (folder / '0').write_text('up');"
        "signal.sigwait(signals); (folder / '1').write_text('told');"
        "signal.sigwait(signals); (folder / '2').write_text('told again')"
    )
    async with running((), (sys.executable, "-c", slow, str(tmp_path))) as supervisor:
        await until(lambda: "0" in notes(tmp_path), "the worker's start")
        stopping = asyncio.create_task(supervisor.stop())
        await until(lambda: "1" in notes(tmp_path), "the stop")
        supervisor.stop_now()
        await stopping
    assert "2" in notes(tmp_path)


async def test_a_worker_that_ends_again_and_again_is_given_up_on_request(tmp_path):
    async with running((), (str(tmp_path / "absent"),), {"most_failures": 2}) as supervisor:
        with pytest.raises(EngineError, match="2 times in a row"):
            await supervisor.wait()


async def test_the_workers_of_a_gpu_have_ended_when_one_of_them_is_given_up(tmp_path):
    """The daemon that they share may end only then."""
    worker = (
        "import os, signal, sys, time; from pathlib import Path;"
        "number = os.environ['MODNORM_BIND_ADDRESS'][-1];"
        "end = lambda *_: (time.sleep(0.5), Path(sys.argv[1], 'ended').touch(), os._exit(0));"
        "signal.signal(signal.SIGTERM, end);"
        "Path(sys.argv[1], number).touch();"
        "wait = lambda: [time.sleep(0.05) for _ in iter(Path(sys.argv[1], '1').exists, True)];"
        "number == '0' and (wait(), os._exit(1)); time.sleep(600)"
    )
    changes = {"engines_per_gpu": "2", "mps": "off"}
    command = (sys.executable, "-c", worker, str(tmp_path))
    async with running(("0",), command, {"most_failures": 1}, **changes) as supervisor:
        with pytest.raises(EngineError, match="exit code 1"):
            await supervisor.wait()
        assert (tmp_path / "ended").exists()


async def test_on_a_cpu_there_is_one_real_worker(target, forks, monkeypatch):
    monkeypatch.setenv("MODNORM_BROKER_URL", f"memory://{uuid.uuid4().hex}")
    monkeypatch.setenv("MODNORM_AGGREGATOR_TARGET", target)
    async with running((), forks.command(COMMAND[-1])) as supervisor:
        await until(serving(supervisor), "serving")


async def test_a_supervisor_that_does_not_start_leaves_no_daemon_behind(tmp_path, monkeypatch):
    tool, asked = tmp_path / CONTROL, tmp_path / "asked"
    tool.write_text(
        f'#!/bin/sh\ntest "$1" = -d && touch {asked} && exit 0\n'
        f"test -e {asked} || exit 1\nread command\necho $command >>{asked}\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    settings = SupervisorSettings(bind_address="192.0.2.1:1", mps="on")
    with pytest.raises(ModnormError):
        await Supervisor(settings, ("0",)).start()
    assert asked.read_text().split() == ["get_server_list", "quit"]


def test_a_worker_is_not_killed_while_it_releases_its_job():
    assert worker.JOIN_SECONDS + aggregator_client.LAST_SECONDS < supervisor.STOP_SECONDS


def test_invalid_devices_end_the_supervisor_with_a_log_line(forks):
    ran = subprocess.run(
        forks.command("modnorm.services.evaluator.supervisor"),
        env=os.environ | {"MODNORM_DEVICES": "0,0"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    ended = json.loads(ran.stderr.splitlines()[-1])
    assert ended["level"] == "critical"
    assert "MODNORM_DEVICES" in ended["event"]
