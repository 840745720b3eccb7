"""The sandbox service as a process, used through its client."""

import json
import signal
import subprocess
import sys

import pytest

from modnorm.errors import UnavailableError
from modnorm.sandbox import Limits, Program, Runner, Verdict
from modnorm.services.common.healthcheck import check
from modnorm.services.evaluator.aggregator_client import failure_kind
from modnorm.services.sandbox.servicer import SERVICE
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.connection import Credentials
from modnorm.wire.remote_sandbox import RemoteSandbox
from tests.faults import error_at

HONEST = Program(["def f(x): return [x, x + 1]"], ["assert f(1) == [1, 2]"])


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """Address of a running service, which must exit with 0."""
    environment = {
        "PATH": "",
        "HOME": str(tmp_path_factory.mktemp("home")),
        "MODNORM_BIND_ADDRESS": "127.0.0.1:0",
        "MODNORM_CONCURRENCY": "2",
        "MODNORM_SECRET": "a credential",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "modnorm.services.sandbox.server"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        logged = (json.loads(line) for line in process.stderr if line.startswith("{"))
        port = next(entry["port"] for entry in logged if entry["event"] == "listening")
        yield f"127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert process.returncode == 0


@pytest.fixture
def remote(target):
    with RemoteSandbox(target, credentials=Credentials()) as client:
        yield client


def test_a_healthy_sandbox_is_serving(target, remote):
    assert check(target, SERVICE) == "SERVING"
    runner: Runner = remote
    assert runner.check_health().healthy


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        ("def f(x): return 0", Verdict.FAILED),
        ("while True: pass", Verdict.TIMEOUT),
        ("x = bytes(2**30)", Verdict.MEMORY),
        ("while True: print('x' * 1000)", Verdict.OUTPUT),
        ("raise ValueError('\\ud800')", Verdict.FAILED),
        ("import os; os._exit(0)", Verdict.FAILED),
        ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", Verdict.TIMEOUT),
    ],
)
def test_every_verdict_is_returned_and_the_service_survives(remote, source, verdict):
    limits = Limits(step_seconds=1.0, memory_bytes=2**27)
    assert remote.execute(Program([source], HONEST.tests, limits)).verdict is verdict
    assert remote.execute(HONEST).passed


def test_programs_cannot_read_the_services_secrets(remote):
    source = "import os\ndef f(): return os.environ.get('MODNORM_SECRET')"
    program = Program([source], ["assert f() is None"])
    assert remote.execute(program).passed


def test_errors_name_the_field(remote):
    with error_at("tests[0]"):
        remote.execute(Program(["def f(x): return x"], ["check(f)"]))


def test_without_a_service_there_is_no_verdict():
    with (
        RemoteSandbox("127.0.0.1:9", credentials=Credentials()) as nobody,
        pytest.raises(UnavailableError),
    ):
        nobody.execute(HONEST)


@pytest.mark.parametrize("call", [lambda it: it.execute(HONEST), lambda it: it.check_health()])
def test_replacing_a_token_does_not_fail_a_program(target, tmp_path, call):
    shown = Credentials(token_file=tmp_path / "token")
    with RemoteSandbox(target, credentials=shown) as remote:
        with pytest.raises(UnavailableError) as caught:
            call(remote)
        assert failure_kind(caught.value, at_engine=True) == messages.FAILURE_KIND_INFRASTRUCTURE
        (tmp_path / "token").write_text("there again")
        call(remote)
