import json
import time

import pytest

from modnorm import __version__
from modnorm.client.doctor import Verdict, check_lab
from modnorm.errors import ForbiddenError, UnauthenticatedError, UnavailableError
from modnorm.v1 import status_pb2, status_pb2_grpc
from modnorm.wire.connection import Credentials
from tests.scripted_services import refuse, served

OWN = __version__
SAMPLER = status_pb2.Dependency(name="sampler", usable=True, detail="answers", version=OWN)
DATABASE = status_pb2.Dependency(name="database", usable=True, detail="answers")


def answer(**changes):
    """What a lab says in which all is well, but for the changes."""
    fields = {
        "version": OWN,
        "dependencies": [DATABASE, SAMPLER],
        "workers": [worker()],
        "jobs_pending": 3,
    }
    response = status_pb2.GetStatusResponse(**{**fields, **changes})
    if not response.HasField("time"):
        response.time.FromNanoseconds(time.time_ns())
    return response


def worker(*, heard_ago=0, **changes):
    made = status_pb2.SeenWorker(**{"name": "w", "jobs": 1, "version": OWN, **changes})
    if heard_ago:
        made.seen.FromNanoseconds(time.time_ns() - heard_ago * 10**9)
    return made


def at(seconds_ago):
    made = answer().time
    made.FromNanoseconds(time.time_ns() - seconds_ago * 10**9)
    return made


def look(reply):
    """Check a lab whose status a function of the context returns."""

    class Service(status_pb2_grpc.StatusServiceServicer):
        def GetStatus(self, request, context):  # noqa: N802 - the rpc's name
            return reply(context)

    add = status_pb2_grpc.add_StatusServiceServicer_to_server
    with served(Service(), add=add) as target:
        return {found.check: found for found in check_lab(target, Credentials())}


def test_all_is_well_on_a_machine_that_runs_the_tests(modnorm, monkeypatch):
    monkeypatch.delenv("MODNORM_SERVER", raising=False)
    code, out, _ = modnorm("doctor", "--json")
    found = json.loads(out)
    assert code == 0, found
    names = [one["check"] for one in found]
    assert names == ["packages", "device", "disk", "model tiny-thicket", "sandbox"]


def test_what_is_broken_is_exit_code_1_with_its_remedy(modnorm, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MODNORM_CACHE_DIR", str(tmp_path / "file"))
    code, out, _ = modnorm("doctor")
    assert code == 1
    assert "broken   disk: cannot write" in out
    assert "-> set MODNORM_CACHE_DIR" in out
    assert "1 broken" in out


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "my lab:50051", "lab:50051 "])
def test_what_is_no_address_is_not_called(address):
    (found,) = check_lab(address, Credentials())
    assert found.verdict is Verdict.BROKEN
    assert f"{address!r} is no address of a lab" in found.detail


def test_a_lab_gets_no_token_in_plain_text_from_a_user_with_a_certificate(tmp_path):
    shown = Credentials(token="secret", tls_cert=tmp_path / "cert", tls_key=tmp_path / "key")
    (found,) = check_lab("127.0.0.1:9", shown)
    assert "MODNORM_TLS_CA" in found.detail
    assert found.verdict is Verdict.BROKEN


def test_a_lab_in_which_all_is_well():
    found = look(lambda _: answer())
    assert {one.verdict for one in found.values()} == {Verdict.OK}
    checks = ["lab", "database", "sampler", "evaluators", "canaries", "clock", "versions"]
    assert list(found) == checks


DOWN = status_pb2.Dependency(name="broker", detail="refused", remedy="start the broker")
IDLE = worker(jobs=0, heard_ago=40)
ODD = worker(name="w1", warning="its base answers otherwise")


@pytest.mark.parametrize(
    ("check", "changes", "verdict", "told"),
    [
        ("evaluators", {"workers": [], "jobs_pending": 0}, Verdict.OK, "no jobs wait"),
        ("evaluators", {"workers": []}, Verdict.BROKEN, "start an evaluator"),
        ("evaluators", {"workers": [IDLE]}, Verdict.WARNING, "start an evaluator"),
        ("broker", {"dependencies": [DOWN]}, Verdict.BROKEN, "start the broker"),
        ("canaries", {"workers": [ODD]}, Verdict.WARNING, "w1: its base answers otherwise"),
        ("clock", {"time": at(90)}, Verdict.WARNING, "NTP"),
        ("versions", {"workers": [worker(version="0.0.1")]}, Verdict.BROKEN, "w 0.0.1"),
        (
            "versions",
            {"version": "9.9", "dependencies": [], "workers": []},
            Verdict.WARNING,
            "install modnorm 9.9 here",
        ),
    ],
)
def test_each_fault_of_a_lab_is_found_and_has_a_remedy(check, changes, verdict, told):
    found = look(lambda _: answer(**changes))[check]
    assert found.verdict is verdict
    assert told in f"{found.detail} {found.remedy}"


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (UnauthenticatedError("no token"), "MODNORM_TOKEN_FILE"),
        (ForbiddenError("not yours"), "operate"),
        (UnavailableError("starting"), "start the aggregator"),
        (UnavailableError("SSL: CERTIFICATE_VERIFY_FAILED: expired"), "renew the certificate"),
        (UnavailableError("Hostname Verification Check failed."), "correct the address"),
    ],
)
def test_a_lab_that_refuses_says_what_to_do(error, remedy):
    (found,) = look(lambda context: refuse(context, error)).values()
    assert found.verdict is Verdict.BROKEN
    assert remedy in found.remedy
