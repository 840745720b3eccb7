"""The sandbox is measured before use, refused without isolation, and restarted after a death."""

import multiprocessing
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from modnorm.errors import EngineError, UnavailableError
from modnorm.sandbox import Guarantee, Limits, Mechanism, Program, Sandbox, Verdict, session
from modnorm.sandbox.session import ProgramSession
from verification.labs.waiting import HANG_SECONDS

PROGRAM = Program(["def f(x): return x + 1"], ["assert f(1) == 2"])


def _zygote_pid(sandbox):
    assert sandbox._zygote is not None
    return sandbox._zygote._process.pid


def test_every_guarantee_holds_here(sandbox):
    isolation = sandbox.check_health()
    assert isolation.healthy
    assert isolation.guarantees == tuple(Guarantee)
    assert set(isolation.mechanisms) | set(isolation.refusals) == set(Mechanism)


@pytest.mark.parametrize("mechanisms", [(), (Mechanism.OWN_UID,)], ids=["none", "own uid"])
def test_without_mechanisms_no_program_runs(mechanisms):
    with Sandbox(mechanisms) as bare:
        isolation = bare.measure()
        assert not isolation.healthy
        assert Guarantee.NO_FOREIGN_WRITES in isolation.broken
        with pytest.raises(UnavailableError, match="does not isolate"):
            bare.check_health()
        with pytest.raises(UnavailableError, match="does not isolate"):
            bare.execute(PROGRAM)


def test_seccomp_and_landlock_suffice(sandbox):
    """The mechanisms of an unprivileged container whose runtime refuses namespaces."""
    needed = {Mechanism.SECCOMP, Mechanism.LANDLOCK}
    if not needed <= set(sandbox.measure().mechanisms):
        pytest.skip("the kernel has no seccomp or no Landlock")
    with Sandbox(needed) as unprivileged:
        isolation = unprivileged.check_health()
        assert not isolation.writable_scratch
        assert unprivileged.execute(PROGRAM).passed


def test_namespaces_suffice(sandbox):
    if Mechanism.NAMESPACES not in sandbox.measure().mechanisms:
        pytest.skip("namespaces are refused")
    with Sandbox({Mechanism.NAMESPACES, Mechanism.OWN_UID}) as running:
        isolation = running.measure()
        assert isolation.writable_scratch
        if Mechanism.OWN_UID in isolation.mechanisms:
            assert isolation.healthy


def test_an_interpreter_of_root_alone_needs_namespaces_or_the_uid_of_root(
    sandbox, tmp_path, monkeypatch
):
    if Mechanism.OWN_UID not in sandbox.measure().mechanisms:
        pytest.skip("needs root")
    (tmp_path / "library").mkdir(mode=0o700)
    readable = (str(tmp_path / "library"), *session._readable())
    monkeypatch.setattr(session, "_readable", lambda: readable)
    with Sandbox() as running:
        assert Mechanism.OWN_UID in running.check_health().mechanisms
    with Sandbox(set(Mechanism) - {Mechanism.NAMESPACES}) as running:
        isolation = running.measure()
        assert str(tmp_path) in isolation.refusals[Mechanism.OWN_UID]
        if isolation.healthy:
            assert running.execute(PROGRAM).passed
    with (
        Sandbox({Mechanism.OWN_UID, Mechanism.SECCOMP}) as bare,
        pytest.raises(UnavailableError, match=f"does not isolate .*{tmp_path}"),
    ):
        bare.execute(PROGRAM)


def test_the_process_default_timeout_of_sockets_changes_nothing():
    """Celery sets one while a worker stops, for all threads."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.01)
    try:
        with Sandbox() as own:
            time.sleep(0.1)
            assert own.execute(PROGRAM).passed
    finally:
        socket.setdefaulttimeout(before)


def test_a_dead_sandbox_is_restarted():
    with Sandbox() as running:
        assert running.execute(PROGRAM).passed
        first = _zygote_pid(running)
        os.kill(first, signal.SIGKILL)
        assert running._zygote is not None
        running._zygote._process.wait()
        assert running.execute(PROGRAM).passed
        assert _zygote_pid(running) != first


def test_death_in_the_middle_is_an_error_and_no_verdict():
    endless = Program(["while True: pass"], [])
    with Sandbox() as running:
        running.check_health()
        threading.Timer(0.5, os.kill, (_zygote_pid(running), signal.SIGKILL)).start()
        with pytest.raises(EngineError):
            running.execute(endless)
        assert running.execute(PROGRAM).passed


def test_closing_ends_every_process(tmp_path):
    running = Sandbox()
    running.check_health()
    pid = _zygote_pid(running)
    assert running._zygote is not None
    directory = running._zygote._directory
    running.close()
    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def _occupy(seconds):
    os.setsid()  # a separate group for a scheduler that shares cores among sessions
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@pytest.fixture
def crowded():
    """A sandbox on a core that three other processes use."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    others = [multiprocessing.Process(target=_occupy, args=(10,), daemon=True) for _ in range(3)]
    try:
        with Sandbox() as running:
            running.check_health()
            for each in others:
                each.start()
            yield running
    finally:
        os.sched_setaffinity(0, cores)
        for each in others:
            each.kill()
            each.join()


@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this kernel does not tell who waits"
)
def test_a_program_gets_its_time_on_a_busy_machine(crowded):
    work = "import time\ndef f():\n    while time.process_time() < 0.35: pass\n    return 1"
    outcome = crowded.execute(Program([work], ["assert f() == 1"], Limits(step_seconds=0.6)))
    assert outcome.passed, outcome
    endless = crowded.execute(Program(["while 1: pass"], [], Limits(step_seconds=0.3)))
    assert endless.verdict is Verdict.TIMEOUT


def test_a_program_that_gets_no_core_has_no_verdict(sandbox, monkeypatch):
    began = time.monotonic()
    monkeypatch.setattr(ProgramSession, "_now", lambda _: began)
    with pytest.raises(EngineError, match="too busy"):
        sandbox.execute(Program(["while 1: pass"], [], Limits(wall_seconds=0.3)))


def test_programs_run_during_a_measurement(sandbox, monkeypatch):
    sandbox.check_health()
    measuring, release = threading.Event(), threading.Event()
    measured = []

    def measure(zygote):
        measuring.set()
        release.wait(HANG_SECONDS)
        measured.append(zygote)
        return isolation

    isolation = sandbox.measure()
    monkeypatch.setattr("modnorm.sandbox.isolation.measure", measure)
    callers = [threading.Thread(target=sandbox.measure) for _ in range(4)]
    program = threading.Thread(target=sandbox.execute, args=(PROGRAM,))
    try:
        callers[0].start()
        assert measuring.wait(HANG_SECONDS)
        for each in (*callers[1:], program):
            each.start()
        program.join(HANG_SECONDS)
        assert not program.is_alive()
        time.sleep(0.1)  # until the others wait
    finally:
        release.set()
        for each in callers:
            each.join()
    assert len(measured) == 2
