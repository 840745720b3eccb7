"""Malformed, oversized and forbidden requests to every rpc of a lab, from a seed.

    python -m benchmarks.fuzz --requests 10000 --seed 1

Each request must be refused the way its token deserves, or be answered without a defect of the
server; afterwards every service still serves and the database holds what it held.
"""

import argparse
import importlib
import pkgutil
import random
import string
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import cast

import grpc
from google.protobuf.descriptor import (
    Descriptor,
    FieldDescriptor,
    MethodDescriptor,
    ServiceDescriptor,
)
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

import modnorm.v1
from benchmarks.secured_lab import SecuredLab, secured_lab
from modnorm.client import ModnormClient
from modnorm.client.channel import Credentials
from modnorm.client.tokens import Role, make_token
from modnorm.spec import parse_spec
from services.common.access.roles import ALLOWED
from services.common.channels import MESSAGE_BYTES
from services.common.healthcheck import check

Metadata = tuple[tuple[str, str | bytes], ...]

CALL_SECONDS = 60.0
CONCURRENCY = 8
OVERSIZED = 0.002
"""Share of the requests that are over the limit of a message."""
MAX_DEPTH = 5
MANY = 20
DEFECTS = frozenset(
    {
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    }
)
"""What no request may lead to."""
EXPECTED = {
    "missing": grpc.StatusCode.UNAUTHENTICATED,
    "garbage": grpc.StatusCode.UNAUTHENTICATED,
    "forged": grpc.StatusCode.UNAUTHENTICATED,
    "expired": grpc.StatusCode.UNAUTHENTICATED,
    "of a wrong role": grpc.StatusCode.PERMISSION_DENIED,
}
"""What calls must end with, by their token; no defect is all that others must show."""
HOMES = {
    "ExperimentService": "aggregator",
    "JobService": "aggregator",
    "CalibrationService": "calibrator",
    "SamplingService": "sampler",
    "SandboxService": "sandbox",
    "StatusService": "aggregator",
}
WORDS = (
    "",
    "gsm8k",
    "randopt",
    "modular_norm",
    "base",
    "nested",
    "sha256-philox",
    "../../../../etc/passwd",
    "/etc/passwd",
    "~root/.ssh/id_rsa",
    "~nobody-here/x",
    "file:///etc/passwd",
    "split:../../etc/passwd",
    "bundled:../../../pyproject",
    "bundled:word-problems-selection",
    "a\0b",
    "\u202e\U0001f600",
    "'; DROP TABLE experiments; --",
    "{{7*7}}",
    "%s%n",
    "0" * 64,
    "-1",
    "NaN",
    "x" * 5000,
)
SPEC = {
    "model": "tiny-thicket",
    "task": {
        "name": "gsm8k",
        "selection": {"source": "bundled:word-problems-selection", "limit": 2},
        "heldout": {"source": "bundled:word-problems-heldout", "limit": 2},
        "max_tokens": 8,
    },
    "method": {"name": "randopt", "sigma": 0.01},
    "population": {"size": 2, "ensemble_sizes": [1]},
}


@dataclass
class Figures:
    """What came of a run."""

    requests: int = 0
    codes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Calls by what was special about their token, and the code that they ended with."""
    faults: list[str] = field(default_factory=list)
    """What should not have been, for people."""
    slow: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds that the calls of each method took together."""
    seconds: float = 0.0


@dataclass(frozen=True)
class _Identity:
    kind: str
    metadata: Metadata
    expected: grpc.StatusCode | None


@dataclass(frozen=True)
class _Request:
    method: MethodDescriptor
    identity: _Identity
    messages: Sequence[bytes]


@dataclass(frozen=True)
class _Outcome:
    request: _Request
    code: grpc.StatusCode
    details: str
    seconds: float


class Fuzzer:
    """Makes requests from a seed and judges what comes of them.

    Args:
        lab: The lab.
        seed: Where the requests come from.
        words: Texts that fields get, beside random ones.
    """

    def __init__(self, lab: SecuredLab, seed: int, words: Sequence[str] = ()) -> None:
        self._lab = lab
        self._random = random.Random(seed)
        self._words = (*WORDS, *words)
        self._methods = tuple(_weighted(every_method()))
        soon = datetime.now(UTC) - timedelta(seconds=1)
        self._roles = {role: lab.token(f"fuzz-{role}", [role]) for role in Role}
        self._stranger = lab.token("fuzz-stranger", list(Role)[:2], tenant="strangers")
        self._expired = lab.token("fuzz-expired", list(Role), expires=soon)
        forged = make_token("fuzz-read", list(Role))[0]
        self._forged: Metadata = (("authorization", f"Bearer {forged}"),)
        self._figures = Figures()

    def run(self, requests: int) -> Figures:
        """Make some requests, of every rpc."""
        began = time.perf_counter()
        options = [("grpc.max_receive_message_length", -1)]
        with ExitStack() as stack, ThreadPoolExecutor(CONCURRENCY) as threads:
            channels = {
                name: stack.enter_context(grpc.insecure_channel(target, options=options))
                for name, target in self._lab.targets.items()
            }
            for done in [
                threads.submit(_call, channels[HOMES[one.method.containing_service.name]], one)
                for one in self._requests(requests)
            ]:
                self._judge(done.result())
        self._figures.requests = requests
        self._figures.seconds = time.perf_counter() - began
        return self._figures

    def _requests(self, count: int) -> Iterator[_Request]:
        for _, method in zip(range(count), cycle(self._methods), strict=False):
            yield _Request(method, self._identity(path_of(method)), self._messages(method))

    def _judge(self, outcome: _Outcome) -> None:
        request, identity, code = outcome.request, outcome.request.identity, outcome.code
        self._figures.codes[identity.kind, code.name] += 1
        self._figures.slow[path_of(request.method)] += outcome.seconds
        wrong = code is not identity.expected if identity.expected else code in DEFECTS
        if wrong:
            sent = ", ".join(f"{one[:80]!r} ({len(one)} B)" for one in request.messages[:3])
            self._figures.faults.append(
                f"{path_of(request.method)} with a token that is {identity.kind}: {code.name} "
                f"{outcome.details[:200]!r}, sent {sent}"
            )

    def _identity(self, path: str) -> _Identity:
        """Choose who calls; two in five have all that the call needs."""
        allowed = ALLOWED[path]
        kinds = {"missing": 2, "garbage": 2, "forged": 2, "expired": 1, "good": 8}
        if forbidden := sorted(set(Role) - allowed):
            kinds["of a wrong role"] = 3
        if not allowed.isdisjoint({Role.SUBMIT, Role.READ}):
            kinds["of another tenant"] = 2
        kind = self._random.choices(tuple(kinds), tuple(kinds.values()))[0]
        shown = {
            "missing": (),
            "garbage": self._garbage(),
            "forged": self._forged,
            "expired": _metadata(self._expired),
            "of another tenant": _metadata(self._stranger),
            "of a wrong role": _metadata(self._roles[self._random.choice(forbidden or [*Role])]),
            "good": _metadata(self._roles[self._random.choice(sorted(allowed))]),
        }
        return _Identity(kind, shown[kind], EXPECTED.get(kind))

    def _garbage(self) -> Metadata:
        letters = string.ascii_letters + string.digits + " _-.:/=\"'"
        text = "".join(self._random.choices(letters, k=self._random.randrange(300))).strip()
        scheme = self._random.choice(("", "Bearer ", "bearer", "Basic "))
        return (("authorization", scheme + text),) * self._random.randint(1, 2)

    def _messages(self, method: MethodDescriptor) -> Sequence[bytes]:
        """Return what is sent: mostly one message, or a short stream where one is taken."""
        if self._random.random() < OVERSIZED:
            return [b"\x0a\x80\x80\x80\x40" + bytes(MESSAGE_BYTES)]
        count = self._random.choice((0, 1, 1, 2, 3)) if method.client_streaming else 1
        return [self._message(method.input_type) for _ in range(count)]

    def _message(self, kind: Descriptor) -> bytes:
        draw = self._random.random()
        if draw < 0.2:
            return self._random.randbytes(self._random.randrange(200))
        content = self._filled(kind, MAX_DEPTH).SerializeToString()
        if draw < 0.4 and content:
            damaged = bytearray(content)
            for _ in range(self._random.randint(1, 4)):
                damaged[self._random.randrange(len(damaged))] = self._random.randrange(256)
            content = bytes(damaged[: self._random.randint(1, len(damaged))])
        return content

    def _filled(self, kind: Descriptor, depth: int) -> Message:
        message = GetMessageClass(kind)()
        for one in kind.fields:
            if self._random.random() < 0.3:
                continue
            if one.message_type is not None and one.message_type.GetOptions().map_entry:
                continue
            count = self._random.randrange(4) if one.is_repeated else 1
            for _ in range(count):
                self._fill(message, one, depth)
        return message

    def _fill(self, message: Message, one: FieldDescriptor, depth: int) -> None:
        if one.message_type is not None:
            if depth:
                inner = self._filled(one.message_type, depth - 1)
                target = getattr(message, one.name)
                (target.add() if one.is_repeated else target).CopyFrom(inner)
            return
        value = self._value(one)
        if one.is_repeated:
            getattr(message, one.name).append(value)
        else:
            setattr(message, one.name, value)

    def _value(self, one: FieldDescriptor) -> object:
        draw = self._random
        if one.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            text = draw.choice(self._words) if draw.random() < 0.8 else _letters(draw)
            return text.encode() if one.type == FieldDescriptor.TYPE_BYTES else text
        if one.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return draw.random() < 0.5
        if one.cpp_type in {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}:
            return draw.choice((0.0, -1.0, 1e308, float("nan"), float("inf"), draw.random()))
        if one.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            return draw.choice((0, 1, 2, 77))
        wide = one.cpp_type in {FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64}
        largest = 2**63 - 1 if wide else 2**31 - 1
        return draw.choice((0, 1, -1, 2, 5, largest, -largest - 1, draw.randrange(1000)))


def _letters(draw: random.Random) -> str:
    return "".join(chr(draw.randrange(1, 0xD7FF)) for _ in range(draw.randrange(20)))


def _metadata(shown: Credentials) -> Metadata:
    return tuple(shown.metadata())


def path_of(method: MethodDescriptor) -> str:
    """Return the full name of a method."""
    return f"/{method.containing_service.full_name}/{method.name}"


def every_method() -> Sequence[MethodDescriptor]:
    """Return every rpc that `proto/` has."""
    return [
        method
        for module in pkgutil.iter_modules(modnorm.v1.__path__)
        if module.name.endswith("_pb2")
        for service in _services(module.name)
        for method in service.methods
    ]


def _services(module: str) -> Sequence[ServiceDescriptor]:
    file = importlib.import_module(f"modnorm.v1.{module}").DESCRIPTOR
    return list(file.services_by_name.values())


def _weighted(methods: Sequence[MethodDescriptor]) -> Iterator[MethodDescriptor]:
    """Yield methods, those whose requests say something more often."""
    for method in methods:
        yield from [method] * (MANY if method.input_type.fields else 1)


def _call(channel: grpc.Channel, request: _Request) -> _Outcome:
    """Send bytes as they are, and see how the call ends."""
    path, metadata, began = path_of(request.method), request.identity.metadata, time.perf_counter()
    try:
        if request.method.client_streaming:
            stream = channel.stream_stream(path, _as_is, _as_is)
            call = stream(iter(request.messages), timeout=CALL_SECONDS, metadata=metadata)
        else:
            single = channel.unary_stream(path, _as_is, _as_is)
            call = single(request.messages[0], timeout=CALL_SECONDS, metadata=metadata)
        for _ in call:
            pass
        code, details = grpc.StatusCode.OK, ""
    except grpc.RpcError as error:
        ended = cast("grpc.Call", error)
        code, details = ended.code(), ended.details() or ""
    return _Outcome(request, code, details, time.perf_counter() - began)


def _as_is(content: bytes) -> bytes:
    return content


def stored_words(lab: SecuredLab) -> Sequence[str]:
    """Have the lab hold an experiment that ended, and return its ids and those of its jobs."""
    owner = lab.token("fuzz-owner", [Role.SUBMIT, Role.READ])
    with ModnormClient(lab.targets["aggregator"], credentials=owner) as client:
        created = client.submit(parse_spec(SPEC))
        for event in client.watch(created.id):
            if event.progress.jobs_total:
                break
        client.cancel(created.id)
        made_from = client.get(created.id).provenance
    return created.id, made_from.selection_digest, made_from.scale_map_digest, *_jobs(lab)


def _jobs(lab: SecuredLab) -> Sequence[str]:
    from sqlalchemy import create_engine, text  # noqa: PLC0415 - of the services alone

    engine = create_engine(lab.database_url)
    with engine.connect() as connection:
        found = [str(row[0]) for row in connection.execute(text("SELECT id FROM jobs"))]
    engine.dispose()
    return found


def contents(lab: SecuredLab) -> Mapping[str, Sequence[str]]:
    """Return everything that the lab's database holds, by table."""
    from sqlalchemy import create_engine  # noqa: PLC0415 - of the services alone

    from services.aggregator import tables  # noqa: PLC0415

    engine = create_engine(lab.database_url)
    with engine.connect() as connection:
        content = {
            table.name: sorted(map(repr, connection.execute(table.select())))
            for table in tables.Experiment.metadata.sorted_tables
        }
    engine.dispose()
    return content


def fuzz(lab: SecuredLab, requests: int, seed: int) -> Figures:
    """Make requests; what is wrong afterwards is among the faults."""
    fuzzer = Fuzzer(lab, seed, stored_words(lab))
    before = contents(lab)
    figures = fuzzer.run(requests)
    figures.faults += [
        f"{name} says {status}"
        for name, target in lab.targets.items()
        if (status := check(target, credentials=Credentials())) not in {"SERVING", "NOT_SERVING"}
    ]
    if contents(lab) != before:
        figures.faults.append("the database has changed")
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, secured_lab(Path(folder)) as lab:
        figures = fuzz(lab, options.requests, options.seed)
    pace = figures.requests / figures.seconds
    print(f"{figures.requests} requests in {figures.seconds:.1f} s ({pace:.0f} /s)")
    for (kind, code), count in sorted(figures.codes.items()):
        print(f"  token {kind:18} {code:20} {count:>7,}")
    for path, seconds in sorted(figures.slow.items(), key=lambda one: -one[1])[:5]:
        print(f"  {path}: {seconds:.1f} s in all")
    print(f"{len(figures.faults)} faults")
    for fault in figures.faults[:20]:
        print(f"  {fault}")
    return 1 if figures.faults else 0


if __name__ == "__main__":
    sys.exit(main())
