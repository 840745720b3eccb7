"""All services of a lab in this process on loopback ports, protected by tokens.

Like `modnorm run`, but with the sandbox as a service, the roots of a real lab and one token per
role. The fuzzer and the security tests use it, with the calls of a worker without a model.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

import grpc
from pydantic import SecretStr
from typing_extensions import override

from modnorm.geometry.scale_map import ScaleMap
from modnorm.search.answers import Answer
from modnorm.services.aggregator.server import Aggregator
from modnorm.services.calibrator.server import build as build_calibrator
from modnorm.services.common.logging import logging_to
from modnorm.services.common.service_process import ANY_PORT, ServiceThread, start_service
from modnorm.services.common.settings import (
    AggregatorSettings,
    CalibratorSettings,
    SamplerSettings,
    SandboxSettings,
    ServiceSettings,
)
from modnorm.services.sampler.server import build as build_sampler
from modnorm.services.sandbox.server import SandboxServer
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.wire.answer_sheets import pack_answers
from modnorm.wire.connection import Credentials
from modnorm.wire.tokens import DEFAULT_TENANT, Role, add_token, make_token
from verification.labs.waiting import HANG_SECONDS

_HARMLESS = ("PollerCompletionQueue._handle_events", "SendStatusFromServerOperation")
"""What gRPC itself logs: two event loops in one process, which real labs do not have, and a caller
that left a stream before its status was sent."""
LEASE_SECONDS = 3600.0
"""Long, so that no lease expires during a test."""
_DEFECTS = ("Traceback", '"exception":', '"level": "error"', '"level": "critical"')
"""Texts that occur in no log line of a healthy lab."""


@dataclass(frozen=True)
class SecuredLab:
    folder: Path
    """`folder/models` and `folder/data` are its roots."""
    database_url: str
    targets: dict[str, str] = field(default_factory=dict)
    """HOST:PORT by name: aggregator, calibrator, sampler, sandbox."""
    _secrets: list[str] = field(default_factory=list)

    @property
    def accepted(self) -> Path:
        """The file of accepted tokens."""
        return self.folder / "tokens.yaml"

    def token(
        self,
        name: str,
        roles: Sequence[Role],
        *,
        tenant: str = DEFAULT_TENANT,
        expires: datetime | None = None,
    ) -> Credentials:
        """Create a token that is accepted at once."""
        text, kept = make_token(name, roles, tenant=tenant, expires=expires)
        add_token(self.accepted, kept)
        self._secrets.append(text.removeprefix(f"modnorm_{name}_"))
        return Credentials(token=SecretStr(text))

    @property
    def logs(self) -> Path:
        """Folder of the services' logs."""
        return self.folder / "logs"

    def complaints(self) -> Iterator[str]:
        """Yield descriptions of defects in the logs."""
        for path in sorted(self.logs.glob("*.log")):
            for line in path.read_text(errors="replace").splitlines():
                is_harmless = any(sign in line for sign in _HARMLESS)
                if any(sign in line for sign in _DEFECTS) and not is_harmless:
                    yield f"{path.stem} logged {line[:2000]}"
                if any(secret in line for secret in self._secrets):
                    yield f"{path.stem} logged a token"


@contextmanager
def secured_lab(
    folder: Path, *, database_url: str = "", broker_url: str = "memory://secured"
) -> Iterator[SecuredLab]:
    """Run a lab without an evaluator inside the context.

    The folder is empty. By default the database is a file in it.
    """
    lab = SecuredLab(folder, database_url or f"sqlite:///{folder / 'lab.db'}")
    inside = lab.token("inside", [Role.INTERNAL])
    for path in (folder / "models", folder / "data", lab.logs):
        path.mkdir()
    common = ServiceSettings(
        bind_address=ANY_PORT,
        accepted_tokens=lab.accepted,
        token=inside.token,
        model_roots=(folder / "models",),
        data_roots=(folder / "data",),
        cache_dir=folder / "cache",
        stop_grace=0.5,
    ).model_dump(exclude_unset=True)
    services = _Services(lab, common, broker_url)
    thread = threading.Thread(target=services.run, name="secured-lab")
    with logging_to(lab.logs / "lab.log", named=False):
        thread.start()
        try:
            lab.targets.update(services.started.result())
            yield lab
        finally:
            services.stop()
            thread.join()


class _Services(ServiceThread[Mapping[str, str]]):
    """Start with the address of each service by name."""

    def __init__(self, lab: SecuredLab, common: Mapping[str, object], broker_url: str) -> None:
        super().__init__()
        self._lab = lab
        self._common = dict(common)
        self._broker_url = broker_url

    @override
    async def _start(self, stack: AsyncExitStack) -> Mapping[str, str]:
        common = self._common
        calibrator = build_calibrator(CalibratorSettings.model_validate(common))
        sampler = build_sampler(SamplerSettings.model_validate(common))
        sandbox = SandboxServer(SandboxSettings.model_validate(common))
        targets = {
            "calibrator": await start_service(calibrator, stack),
            "sampler": await start_service(sampler, stack),
            "sandbox": await start_service(sandbox, stack),
        }
        settings = AggregatorSettings.model_validate(
            {
                **common,
                "database_url": self._lab.database_url,
                "broker_url": self._broker_url,
                "lease_seconds": LEASE_SECONDS,
                "calibrator_target": targets["calibrator"],
                "sampler_target": targets["sampler"],
                "sandbox_target": targets["sandbox"],
            }
        )
        targets["aggregator"] = await start_service(Aggregator(settings), stack)
        return targets


def claimed(
    channel: grpc.Channel,
    job_id: str,
    worker: str = "by-hand",
    *,
    seconds: float = HANG_SECONDS,
    unfit: Sequence[str] = (),
) -> messages.Job | None:
    """Lease a job, or any if the id is empty; None if it is not pending."""
    stub, others = JobServiceStub(channel), list[messages.Lease]()
    job = None
    while job is None:
        request = messages.ClaimJobRequest(worker=worker, unfit_experiments=unfit)
        claim = stub.ClaimJob(request, timeout=seconds)
        if not claim.HasField("job"):
            break
        if job_id in {claim.job.lease.job_id, ""}:
            job = claim.job
        else:
            others.append(claim.job.lease)
    for lease in others:
        released = messages.FailJobRequest(lease=lease, kind=messages.FAILURE_KIND_RELEASED)
        stub.FailJob(released, timeout=seconds)
    return job


def leased(channel: grpc.Channel, job_id: str, worker: str = "by-hand") -> messages.Job:
    job = claimed(channel, job_id, worker)
    assert job is not None, f"job {job_id} cannot be leased"
    return job


def artifact(stub: JobServiceStub, digest: str, timeout: float) -> str:
    stream = stub.FetchArtifact(messages.FetchArtifactRequest(digest=digest), timeout=timeout)
    return b"".join(part.chunk for part in stream).decode()


def report_of(
    channel: grpc.Channel, job: messages.Job, reward: float = 0.0, *, right: bool = False
) -> messages.ReportJobRequest:
    """Return a valid report of a job, whose answers may all be right."""
    stub = JobServiceStub(channel)
    rows = artifact(stub, job.rows_digest, HANG_SECONDS).count("\n") + 1
    scale_map = artifact(stub, job.descriptor.scale_map_digest, HANG_SECONDS)
    active = len(ScaleMap.from_json(scale_map).active)
    report = messages.ReportJobRequest(
        lease=job.lease, descriptor=job.descriptor, worker="by-hand"
    )
    if not report.descriptor.coefficients:
        report.descriptor.coefficients.extend([0.5] * active)
    answer = partial(Answer, completion="an answer", reward=reward, tokens=2, truncated=False)
    report.answers = pack_answers(
        answer(row=row, vote="1" if right else None, correct=right) for row in range(rows)
    )
    return report


def reported(channel: grpc.Channel, report: messages.ReportJobRequest) -> None:
    JobServiceStub(channel).ReportJob(report, timeout=HANG_SECONDS)
