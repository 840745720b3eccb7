"""Client of the sandbox service, with the interface of a local sandbox."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Self

import grpc

from modnorm.errors import EngineError, InvalidInputError, UnavailableError
from modnorm.sandbox import (
    Guarantee,
    Isolation,
    Limits,
    Mechanism,
    Program,
    ProgramOutcome,
    Sandbox,
    Verdict,
)
from modnorm.spec import TaskSpec
from modnorm.tasks import Task, get_stored_task, runs_programs
from modnorm.v1 import sandbox_pb2, sandbox_pb2_grpc
from modnorm.wire.channel import channel_options, open_channel
from modnorm.wire.connection import Credentials
from modnorm.wire.conversions import from_message, to_message
from modnorm.wire.status import from_neighbour


def program_to_proto(program: Program) -> sandbox_pb2.ExecuteRequest:
    """Encode a program with all its limits."""
    return sandbox_pb2.ExecuteRequest(
        sources=program.sources,
        tests=program.tests,
        limits=sandbox_pb2.SandboxLimits(**asdict(program.limits)),
    )


def program_from_proto(message: sandbox_pb2.ExecuteRequest) -> Program:
    """Decode a program; limits that are not set get their default."""
    limits = {field.name: value for field, value in message.limits.ListFields()}
    return Program(tuple(message.sources), tuple(message.tests), Limits(**limits))


def outcome_to_proto(outcome: ProgramOutcome) -> sandbox_pb2.ExecuteResponse:
    """Encode an outcome; lone surrogates in the program's text are replaced."""
    return to_message(
        sandbox_pb2.ExecuteResponse,
        outcome,
        verdict=sandbox_pb2.Verdict.Value(f"VERDICT_{outcome.verdict.name}"),
        detail=_unicode(outcome.detail),
        printed=_unicode(outcome.printed),
    )


def _unicode(text: str) -> str:
    """Replace lone surrogates, which protobuf refuses."""
    return text.encode(errors="replace").decode()


def outcome_from_proto(message: sandbox_pb2.ExecuteResponse) -> ProgramOutcome:
    names = {number: name for name, number in sandbox_pb2.Verdict.items()}
    name = names.get(message.verdict, "").removeprefix("VERDICT_")
    if name not in Verdict.__members__:
        raise EngineError(f"the sandbox service gave no verdict: {message.verdict}")
    return from_message(ProgramOutcome, message, verdict=Verdict[name])


def isolation_to_proto(isolation: Isolation) -> sandbox_pb2.GetIsolationResponse:
    return sandbox_pb2.GetIsolationResponse(
        healthy=isolation.healthy,
        guarantees=isolation.guarantees,
        broken={name.value: seen for name, seen in isolation.broken.items()},
        mechanisms=isolation.mechanisms,
        refusals={name.value: why for name, why in isolation.refusals.items()},
        landlock_abi=isolation.landlock_abi,
        writable_scratch=isolation.writable_scratch,
    )


def isolation_from_proto(message: sandbox_pb2.GetIsolationResponse) -> Isolation:
    """Decode a measurement.

    A guarantee of this version that the service does not name counts as broken.
    """
    try:
        broken = {Guarantee(name): seen for name, seen in message.broken.items()}
        unknown = set(Guarantee) - {Guarantee(name) for name in message.guarantees} - set(broken)
        broken.update(dict.fromkeys(unknown, "the service does not measure it"))
        return Isolation(
            broken=broken,
            mechanisms=tuple(Mechanism(name) for name in message.mechanisms),
            refusals={Mechanism(name): why for name, why in message.refusals.items()},
            landlock_abi=message.landlock_abi,
            writable_scratch=message.writable_scratch,
        )
    except ValueError as error:
        raise EngineError(f"the sandbox service is of another version: {error}") from error


_MEASURE_SECONDS = 120.0
_SERVICE = sandbox_pb2.DESCRIPTOR.services_by_name["SandboxService"].full_name
_QUEUE_SECONDS = 120.0
"""How long a program may wait for its turn, on top of its own limit."""
# A program may run twice: it leaves nothing behind.
_CHANNEL_OPTIONS = channel_options([{"service": _SERVICE}], most_bytes=16 * 2**20)


class RemoteSandbox:
    """Sends programs to a sandbox service; threads may share it."""

    def __init__(self, target: str, *, credentials: Credentials) -> None:
        self._channel = open_channel(target, credentials, _CHANNEL_OPTIONS)
        self._stub = sandbox_pb2_grpc.SandboxServiceStub(self._channel)

    def execute(self, program: Program) -> ProgramOutcome:
        timeout, request = program.limits.wall_seconds + _QUEUE_SECONDS, program_to_proto(program)
        with _errors():
            response = self._stub.Execute(request, timeout=timeout)
        return outcome_from_proto(response)

    def check_health(self) -> Isolation:
        """Measure the isolation of the service now."""
        request = sandbox_pb2.GetIsolationRequest()
        with _errors():
            response = self._stub.GetIsolation(request, timeout=_MEASURE_SECONDS)
        isolation = isolation_from_proto(response)
        isolation.require()
        return isolation

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        raise from_neighbour(error, "sandbox") from error
    except InvalidInputError as error:
        # The token file cannot be read: the program and its experiment are not at fault.
        raise UnavailableError(error.message, field=error.field) from error


def sandbox_at(target: str, credentials: Credentials) -> RemoteSandbox | None:
    """Return the sandbox service at HOST:PORT, None for an empty text."""
    return RemoteSandbox(target, credentials=credentials) if target else None


@contextmanager
def judging_task(
    named: TaskSpec, target: str | None = None, credentials: Credentials | None = None
) -> Iterator[Task]:
    """Yield a task that can judge: programs run in a sandbox of this process or of a service."""
    make = partial(get_stored_task, named.name, scorer=named.scorer, declaration=named.declaration)
    task = make()  # reports a wrong name before a sandbox starts
    if not runs_programs(named.name):
        yield task
        return
    shown = credentials or Credentials()
    if target:
        shown.require_authorities()
    with RemoteSandbox(target, credentials=shown) if target else Sandbox() as sandbox:
        sandbox.check_health()
        yield make(sandbox=sandbox)
