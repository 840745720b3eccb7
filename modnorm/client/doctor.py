"""Checks of this machine and of a lab, with remedies."""

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib import metadata
from pathlib import Path

import grpc
from packaging.requirements import Requirement

from modnorm import __version__
from modnorm.checkpoint.reference import bundled_models, resolve_checkpoint
from modnorm.errors import ForbiddenError, ModnormError, UnauthenticatedError
from modnorm.host import default_cache
from modnorm.v1 import status_pb2, status_pb2_grpc
from modnorm.wire.channel import open_channel
from modnorm.wire.connection import Credentials, require_target
from modnorm.wire.status import from_rpc_error


class Verdict(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """A feature that not everybody needs works badly or not at all."""
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    check: str
    verdict: Verdict
    detail: str
    remedy: str = ""


def ok(check: str, detail: str) -> Finding:
    return Finding(check, Verdict.OK, detail)


def warning(check: str, detail: str, remedy: str) -> Finding:
    return Finding(check, Verdict.WARNING, detail, remedy)


def broken(check: str, detail: str, remedy: str) -> Finding:
    return Finding(check, Verdict.BROKEN, detail, remedy)


MODEL_DIGESTS = {
    "tiny-thicket": "c404745383921b34e9ef889eb08cadddf4c202966526a7286bb9c4eb28613be9"
}
"""Digests of the bundled models, as released."""
FREE_BYTES = 2**30
"""Free disk below which runs are likely to fill it: answers, profiles, scale maps."""
_NVIDIA = Path("/proc/driver/nvidia/version")
_SHOWN = ("modnorm", "torch", "transformers", "grpcio")


def check_machine(cache: Path | None) -> Iterator[Finding]:
    checks: tuple[tuple[str, Callable[[], Finding]], ...] = (
        ("packages", _check_packages),
        ("device", _check_device),
        ("disk", partial(_check_disk, cache)),
        *((f"model {name}", partial(check_model, name)) for name in bundled_models()),
        ("sandbox", _check_sandbox),
    )
    for name, check in checks:
        try:
            yield check()
        except ModnormError as error:
            yield broken(name, error.message, error.remedy or "fix the cause")
        except Exception as error:  # noqa: BLE001 - a broken installation raises anything
            detail = f"{type(error).__name__}: {error}"
            yield broken(name, detail, "install modnorm anew; report this if it stays")


def _check_packages() -> Finding:
    """Compare installed packages with the requirements; those of extras may be missing."""
    bad = []
    for requirement in map(Requirement, metadata.requires("modnorm") or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            try:
                found = metadata.version(requirement.name)
            except metadata.PackageNotFoundError:
                bad.append(f"{requirement.name} is not installed")
                continue
            if not requirement.specifier.contains(found, prereleases=True):
                bad.append(f"{requirement.name} is {found}, not {requirement.specifier}")
    if bad:
        return broken("packages", "; ".join(bad), "install modnorm anew: pip install -e .")
    versions = [f"{name} {metadata.version(name)}" for name in _SHOWN]
    return ok("packages", ", ".join([f"python {platform.python_version()}", *versions]))


def _check_device() -> Finding:
    import torch  # noqa: PLC0415 - takes seconds

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return ok("device", f"CUDA {torch.version.cuda}: {', '.join(names)}")
    if not _NVIDIA.exists():
        return ok(
            "device", f"no GPU; {os.cpu_count()} CPUs, torch threads: {torch.get_num_threads()}"
        )
    return broken(
        "device",
        f"there is an NVIDIA driver, and torch {torch.__version__} sees no GPU",
        "install a torch with CUDA that the driver supports; see CUDA_VISIBLE_DEVICES and, in a "
        "container, whether it was given GPUs",
    )


def _check_disk(given: Path | None) -> Finding:
    """Write to the cache directory, and check the free space."""
    cache = given or default_cache()
    remedy = "set MODNORM_CACHE_DIR to a directory of yours with room"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache) as file:
            file.write(b"\0" * 4096)
        free = shutil.disk_usage(cache).free
    except OSError as error:
        return broken("disk", f"cannot write to {cache}: {error.strerror}", remedy)
    detail = f"{free / 2**30:.1f} GiB free under {cache}"
    return ok("disk", detail) if free >= FREE_BYTES else warning("disk", detail, remedy)


def check_model(name: str) -> Finding:
    """Compare a bundled model, byte for byte, with the released one."""
    check = f"model {name}"
    digest = resolve_checkpoint(name).digest
    if digest != MODEL_DIGESTS.get(name):
        remedy = "install modnorm anew: results of this model would compare with nobody's"
        return broken(check, f"its digest is {digest[:12]}, not the released one", remedy)
    return ok(check, f"digest {digest[:12]}")


def _check_sandbox() -> Finding:
    from modnorm.sandbox import Sandbox  # noqa: PLC0415 - not imported by other commands

    with Sandbox() as sandbox:
        isolation = sandbox.measure()
    if isolation.healthy:
        return ok("sandbox", f"isolates: {isolation.summary}")
    seen = "; ".join(f"{name}: {what}" for name, what in isolation.broken.items())
    return warning(
        "sandbox",
        f"does not isolate ({seen}): tasks whose answers are programs are refused here",
        "docs/sandbox.md lists what the kernel must allow",
    )


STATUS_SECONDS = 60.0
SKEW_SECONDS = 5.0
"""Clocks that differ by more make logs hard to read together, and certificates early or late."""
_CERTIFICATE = ("CERTIFICATE_VERIFY_FAILED", "Hostname Verification Check failed")
"""Parts of the message of a TLS handshake that failed for its certificate."""


def check_lab(target: str, credentials: Credentials) -> Iterator[Finding]:
    start = time.time()
    try:
        require_target(target)
        credentials.require_authorities()
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
        if dependency.usable:
            yield ok(dependency.name, dependency.detail)
        else:
            yield broken(dependency.name, dependency.detail, dependency.remedy or "see its log")
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
    elif isinstance(error, UnauthenticatedError):
        remedy = "set MODNORM_TOKEN_FILE to a token that the lab accepts"
    elif isinstance(error, ForbiddenError):
        remedy = "use a token with the role `read` or `operate`"
    else:
        remedy = (
            "start the aggregator; see that address, port, firewall and TLS fit: MODNORM_TLS_CA, "
            "and MODNORM_TLS_CERT and MODNORM_TLS_KEY where callers must have a certificate"
        )
    return broken("lab", f"{target}: {error.message}", remedy)


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
    if __version__ != status.version:
        detail = f"the lab is {status.version}, this is {__version__}"
        return warning("versions", detail, f"install modnorm {status.version} here")
    return ok("versions", f"{__version__} everywhere")
