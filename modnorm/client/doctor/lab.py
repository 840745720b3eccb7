"""A lab, as its aggregator sees it and as it is seen from here."""

import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version

import grpc

from modnorm.client.doctor.findings import Finding, broken, ok, warning
from modnorm.errors import ForbiddenError, ModnormError, UnauthenticatedError
from modnorm.v1 import status_pb2, status_pb2_grpc
from modnorm.wire.channel import open_channel
from modnorm.wire.connection import Credentials
from modnorm.wire.status import from_rpc_error

STATUS_SECONDS = 60.0
SKEW_SECONDS = 5.0
"""Clocks that differ by more make logs hard to read together, and certificates early or late."""
_REMEDIES: Sequence[tuple[type[ModnormError], str]] = (
    (UnauthenticatedError, "set MODNORM_TOKEN_FILE to a token that the lab accepts"),
    (ForbiddenError, "use a token with the role `read` or `operate`"),
)
_CERTIFICATE = ("CERTIFICATE_VERIFY_FAILED", "Hostname Verification Check failed")
"""Parts of the message of a TLS handshake that failed for its certificate."""


def check_lab(target: str, credentials: Credentials) -> Iterator[Finding]:
    """Yield the findings about a lab."""
    start = time.time()
    try:
        with open_channel(target, credentials, ()) as channel:
            stub = status_pb2_grpc.StatusServiceStub(channel)
            status = stub.GetStatus(status_pb2.GetStatusRequest(), timeout=STATUS_SECONDS)
    except grpc.RpcError as error:
        yield _unreachable(target, from_rpc_error(error))
        return
    except ModnormError as error:
        yield broken("lab", str(error), error.remedy or "correct the setting that it names")
        return
    yield ok("lab", f"{target} answers in {time.time() - start:.2f} s")
    for dependency in status.dependencies:
        yield _dependency(dependency)
    yield _workers(status)
    yield _canaries(status)
    yield _clock(status, start, time.time())
    yield _versions(status)


def _unreachable(target: str, error: ModnormError) -> Finding:
    if any(words in error.message for words in _CERTIFICATE):
        remedy = (
            "renew the certificate that the aggregator shows and restart it, or correct the "
            "address or MODNORM_TLS_CA here: `openssl x509 -enddate -issuer -ext subjectAltName "
            "-noout -in FILE` shows end, authority and hosts of a certificate"
        )
        return broken("lab", f"{target}: {error.message}", remedy)
    remedies = (remedy for kind, remedy in _REMEDIES if isinstance(error, kind))
    remedy = next(
        remedies,
        "start the aggregator; see that address, port, firewall and TLS fit: MODNORM_TLS_CA, and "
        "MODNORM_TLS_CERT and MODNORM_TLS_KEY where callers must have a certificate",
    )
    return broken("lab", f"{target}: {error.message}", remedy)


def _dependency(found: status_pb2.Dependency) -> Finding:
    if found.usable:
        return ok(found.name, found.detail)
    return broken(found.name, found.detail, found.remedy or "see its log")


def _workers(status: status_pb2.GetStatusResponse) -> Finding:
    """Check that evaluators run if jobs wait; idle ones send nothing."""
    check, workers, pending = "evaluators", status.workers, status.jobs_pending
    busy = sum(worker.jobs > 0 for worker in workers)
    if not workers and not pending:
        return ok(check, f"no jobs wait; idle {check} are not heard")
    detail = f"{len(workers)} heard lately, {busy} at work, {pending} jobs wait"
    if busy or not pending:
        return ok(check, detail)
    if not workers:
        return broken(
            check,
            detail,
            "start an evaluator; if one runs, its log states why it cannot reach the broker "
            "or the aggregator",
        )
    last = max(worker.seen.ToNanoseconds() for worker in workers)
    silent = (status.time.ToNanoseconds() - last) / 1e9
    return warning(
        check,
        f"{detail}; the last was heard {silent:.0f} s ago",
        "repeat this in a minute, since a failed evaluator tries again; then start an "
        "evaluator, and read the logs of the others",
    )


def _canaries(status: status_pb2.GetStatusResponse) -> Finding:
    """Check that equal workers give equal answers."""
    odd = [f"{worker.name}: {worker.warning}" for worker in status.workers if worker.warning]
    if not odd:
        return ok("canaries", "no worker is known to answer otherwise than its equals")
    return warning(
        "canaries",
        "; ".join(odd),
        "take those workers out, test their GPUs (dcgmi diag, memtest) and compare their images; "
        "docs/runbook/canary-deviates.md",
    )


def _clock(status: status_pb2.GetStatusResponse, start: float, end: float) -> Finding:
    """Compare clocks; the duration of the call is the tolerance."""
    theirs = status.time.ToNanoseconds() / 1e9
    skew = max(start - theirs, theirs - end, 0.0)
    detail = f"the lab's clock is within {skew:.1f} s of this one"
    if skew <= SKEW_SECONDS:
        return ok("clock", detail)
    return warning(
        "clock", f"the clocks differ by {skew:.0f} s", "keep both with NTP: timedatectl set-ntp 1"
    )


def _versions(status: status_pb2.GetStatusResponse) -> Finding:
    found = {(one.name, one.version) for one in status.dependencies}
    found |= {(one.name, one.version) for one in status.workers}
    others = {(name, number) for name, number in found if number not in {"", status.version}}
    if others:
        names = ", ".join(f"{name} {number}" for name, number in sorted(others))
        detail = f"the aggregator is {status.version}, others are not: {names}"
        return broken("versions", detail, "run the same version of all services")
    own = version("modnorm")
    if own != status.version:
        detail = f"the lab is {status.version}, this is {own}"
        return warning("versions", detail, f"install modnorm {status.version} here")
    return ok("versions", f"{own} everywhere")
