"""Tokens that are revoked, replaced or missing during calls."""

import contextlib
import threading

import pytest

from modnorm.client.client import Client
from modnorm.client.experiments import ExperimentState
from modnorm.errors import UnauthenticatedError, UnavailableError
from modnorm.services.evaluator.aggregator_client import AggregatorClient
from modnorm.services.evaluator.job_inputs import TaskCache, UnfitError
from modnorm.services.evaluator.shutdown import Shutdown
from modnorm.v1 import evaluation_pb2, evaluation_pb2_grpc
from modnorm.wire.connection import Credentials
from modnorm.wire.remote_sandbox import RemoteSandbox
from modnorm.wire.tokens import Role, revoke_token
from verification.labs.secured_lab import secured_lab
from verification.labs.waiting import HANG_SECONDS, wait_until


def test_a_revoked_token_is_refused_soon(lab, client, exhaust):
    connected = client(lab.token("short-lived", [Role.READ]))
    list(connected.list())
    revoke_token(lab.accepted, "short-lived")
    with pytest.raises(UnauthenticatedError, match="revoked"):
        exhaust(connected.list() for _ in range(10_000))


def test_a_token_in_a_file_may_be_replaced(lab, client, tmp_path, write_token):
    file = tmp_path / "token"
    connected = client(Credentials(token_file=file))
    for name in ("before", "after"):
        write_token(file, f"{name}-replaced", Role.READ)
        list(connected.list())
        revoke_token(lab.accepted, f"{name}-replaced")


@pytest.mark.parametrize("fault", ["forbidden", "revoked"])
def test_a_claim_waits_for_a_token_that_is_accepted(
    lab, channel, tmp_path, write_token, fault, caplog
):
    file, name = tmp_path / "token", f"claimer-{fault}"
    write_token(file, name, Role.READ if fault == "forbidden" else Role.WORKER)
    if fault == "revoked":
        revoke_token(lab.accepted, name)
    shutdown = Shutdown(0.0)
    stub = evaluation_pb2_grpc.JobServiceStub(channel(Credentials(token_file=file)))
    client = AggregatorClient(stub, worker="claimer", shutdown=shutdown)
    claim = threading.Thread(target=client.claim)
    claim.start()
    try:
        wait_until(lambda: f"not claimed: the token '{name}'" in caplog.text, "it is refused")
        assert claim.is_alive()
        write_token(file, f"{name}-after", Role.WORKER)
        claim.join(HANG_SECONDS)
        assert not claim.is_alive()
    finally:
        shutdown.request()
        claim.join(HANG_SECONDS)


def test_an_outcome_waits_for_the_token_that_replaces_a_revoked_one(
    lab, channel, tmp_path, write_token, exhaust, caplog
):
    file = tmp_path / "token"
    write_token(file, "rotated-before", Role.WORKER)
    stub = evaluation_pb2_grpc.JobServiceStub(channel(Credentials(token_file=file)))
    client = AggregatorClient(stub, worker="rotated", shutdown=Shutdown(0.0))
    revoke_token(lab.accepted, "rotated-before")
    lease = evaluation_pb2.Lease(job_id="nobody", token=1)
    with pytest.raises(UnauthenticatedError):
        exhaust(client.heartbeat([]) for _ in range(10_000))
    threading.Timer(2.0, write_token, [file, "rotated-after", Role.WORKER]).start()
    client.fail(lease, evaluation_pb2.FAILURE_KIND_INFRASTRUCTURE, "a reason")
    assert "failure not reported: " in caplog.text
    assert "there is no job 'nobody'" in caplog.text


@pytest.mark.parametrize("name", ["none", "read"])
def test_a_job_is_released_if_the_sandbox_refuses_the_worker(lab, tokens, name):
    sandbox = RemoteSandbox(lab.targets["sandbox"], credentials=tokens[name])
    with contextlib.closing(sandbox), pytest.raises(UnfitError):
        TaskCache(sandbox).check("mbpp")


def test_a_watch_ends_with_its_token_and_goes_on_with_the_next(
    lab, client, spec, tmp_path, exhaust, write_token
):
    file, owner = tmp_path / "token", client("team-a")
    followed = [owner.submit(spec(name=f"watched {number}")).id for number in range(2)]
    shown = Credentials(token_file=file)

    def renewed(number):
        write_token(file, f"watcher-{number}", Role.READ, tenant="team-a")

    def revoked(number):
        revoke_token(lab.accepted, f"watcher-{number}")
        with pytest.raises(UnauthenticatedError):
            exhaust(client(shown).list() for _ in range(10_000))

    renewed(0)
    watching = [client(shown).watch(id_) for id_ in followed]
    for events in watching:
        next(events)
    revoked(0)
    owner.cancel(followed[0])
    with pytest.raises(UnauthenticatedError, match="revoked"):
        exhaust([watching[0]])
    renewed(1)
    owner.cancel(followed[1])
    assert "CANCELLED" in [event.message for event in watching[1]][-1].upper()


def test_a_refused_aggregator_reports_its_own_token(tmp_path, spec, exhaust):
    (tmp_path / "lab").mkdir()
    with secured_lab(tmp_path / "lab") as lab:
        owner = lab.token("owner", [Role.SUBMIT, Role.READ])
        revoke_token(lab.accepted, "inside")
        with Client(lab.targets["aggregator"], credentials=owner) as client:
            with pytest.raises(UnavailableError, match="the token 'inside' was revoked"):
                exhaust([client.submit(spec(name=str(number))).id] for number in range(1000))
            assert all(one.state is not ExperimentState.FAILED for one in client.list())
