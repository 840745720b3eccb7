"""Sends requests to every rpc under various tokens, and judges the result of each call."""

import random
import string
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from typing import cast

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from modnorm.services.common.access import ALLOWED, OPEN
from modnorm.services.common.healthcheck import check
from modnorm.wire.channel import open_channel
from modnorm.wire.connection import Credentials
from modnorm.wire.tokens import Role, make_token
from verification.fuzz.invalid_requests import MessageMaker
from verification.fuzz.stored import contents, store, unasked
from verification.labs.secured_lab import SecuredLab
from verification.labs.waiting import HANG_SECONDS

Metadata = tuple[tuple[str, str | bytes], ...]

WATCH_SECONDS = 0.5
"""Seconds for which an endless response stream is read."""
CONCURRENCY = 8
BATCH = 64
"""Requests that are made at once; some are large."""
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0)]
MANY = 8
"""Factor of the call frequency of rpcs whose requests have fields."""
DEFECTS = frozenset(
    {
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    }
)
"""Status codes that no request may cause."""
EXPECTED = {
    "missing": grpc.StatusCode.UNAUTHENTICATED,
    "garbage": grpc.StatusCode.UNAUTHENTICATED,
    "forged": grpc.StatusCode.UNAUTHENTICATED,
    "expired": grpc.StatusCode.UNAUTHENTICATED,
    "of a wrong role": grpc.StatusCode.PERMISSION_DENIED,
}
"""Required status codes by token; other calls must only show no defect."""
_HUB = "Hugging Face"
"""Errors about the hub, which this lab cannot reach, are rightly UNAVAILABLE."""


@dataclass(frozen=True)
class Rpc:
    """A method of a service, and the process of the lab that serves it."""

    home: str
    method: MethodDescriptor

    @property
    def path(self) -> str:
        """Full name of the method in calls."""
        return f"/{self.method.containing_service.full_name}/{self.method.name}"

    @property
    def endless(self) -> bool:
        """Whether its response stream has no end."""
        return self.method.name.startswith("Watch")


def every_rpc(targets: Mapping[str, str], shown: Credentials) -> Sequence[Rpc]:
    """Return all methods of all services, including health checks and reflection."""
    found = []
    for home, target in targets.items():
        with open_channel(target, shown, ()) as channel:
            database = ProtoReflectionDescriptorDatabase(channel)
            pool = DescriptorPool(database)
            for name in sorted(database.get_services()):
                found += [Rpc(home, method) for method in pool.FindServiceByName(name).methods]
    return found


@dataclass
class FuzzResults:
    requests: int = 0
    rpcs: Sequence[str] = ()
    codes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of calls by kind of token and status code."""
    accepted: Counter[str] = field(default_factory=Counter)
    """Number of OK calls by method."""
    faults: list[str] = field(default_factory=list)
    """Descriptions of violations."""
    seconds: float = 0.0


@dataclass(frozen=True)
class _Identity:
    kind: str
    metadata: Metadata
    expected: grpc.StatusCode | None


@dataclass(frozen=True)
class _Request:
    rpc: Rpc
    identity: _Identity
    message: bytes


class Identities:
    """Chooses the token of each call; two in five tokens suffice for the call."""

    def __init__(self, lab: SecuredLab, noise: random.Random) -> None:
        self._noise = noise
        past = datetime.now(UTC) - timedelta(seconds=1)
        self.roles = {role: lab.token(f"fuzz-{role}", [role]) for role in Role}
        people = [Role.SUBMIT, Role.READ]
        self._stranger = lab.token("fuzz-stranger", people, tenant="strangers")
        self._expired = lab.token("fuzz-expired", list(Role), expires=past)
        self._forged = make_token("fuzz-read", list(Role))[0]

    def choose(self, path: str) -> _Identity:
        if path.startswith(OPEN):
            return _Identity("not wanted", (), None)
        allowed = ALLOWED[path]
        kinds = {"missing": 2, "garbage": 2, "forged": 2, "expired": 1, "good": 8}
        forbidden = sorted(set(Role) - allowed)
        if forbidden:
            kinds["of a wrong role"] = 3
        if not allowed.isdisjoint({Role.SUBMIT, Role.READ}):
            kinds["of another tenant"] = 2
        kind = self._noise.choices(tuple(kinds), tuple(kinds.values()))[0]
        shown = {
            "missing": (),
            "garbage": self._garbage(),
            "forged": (("authorization", f"Bearer {self._forged}"),),
            "expired": _metadata(self._expired),
            "of another tenant": _metadata(self._stranger),
            "of a wrong role": _metadata(self.roles[self._noise.choice(forbidden or [*Role])]),
            "good": _metadata(self.roles[self._noise.choice(sorted(allowed))]),
        }
        return _Identity(kind, shown[kind], EXPECTED.get(kind))

    def _garbage(self) -> Metadata:
        letters = string.ascii_letters + string.digits + " _-.:/=\"'"
        text = "".join(self._noise.choices(letters, k=self._noise.randrange(300))).strip()
        scheme = self._noise.choice(("", "Bearer ", "bearer", "Basic "))
        return (("authorization", scheme + text),) * self._noise.randint(1, 2)


class Fuzzer:
    """Generates requests from a seed, sends them and judges the results."""

    def __init__(self, lab: SecuredLab, seed: int) -> None:
        self._lab = lab
        noise = random.Random(seed)
        stored = store(lab)
        self._maker = MessageMaker(noise, stored.words, stored.valid)
        self._identities = Identities(lab, noise)
        self.rpcs = every_rpc(lab.targets, self._identities.roles[Role.READ])
        self._figures = FuzzResults(rpcs=sorted({rpc.path for rpc in self.rpcs}))

    def run(self, requests: int) -> FuzzResults:
        """Send requests to every rpc."""
        began = time.perf_counter()
        with ExitStack() as stack, ThreadPoolExecutor(CONCURRENCY) as threads:
            channels = {
                home: stack.enter_context(grpc.insecure_channel(target, options=_OPTIONS))
                for home, target in self._lab.targets.items()
            }
            drawn = self._requests(requests)
            while batch := list(islice(drawn, BATCH)):
                calls = [threads.submit(_call, channels[one.rpc.home], one) for one in batch]
                for request, call in zip(batch, calls, strict=True):
                    self._judge(request, *call.result())
        self._figures.requests = requests
        self._figures.seconds = time.perf_counter() - began
        return self._figures

    def _requests(self, count: int) -> Iterator[_Request]:
        has_fields = {
            rpc: bool(rpc.method.input_type.fields) and rpc.path in ALLOWED for rpc in self.rpcs
        }
        rpcs = [rpc for rpc in self.rpcs for _ in range(MANY if has_fields[rpc] else 1)]
        for rpc in islice(cycle(rpcs), count):
            message = self._maker.make(rpc.path, rpc.method)
            yield _Request(rpc, self._identities.choose(rpc.path), message)

    def _judge(self, request: _Request, code: grpc.StatusCode, details: str) -> None:
        identity, path, message = request.identity, request.rpc.path, request.message
        self._figures.codes[identity.kind, code.name] += 1
        self._figures.accepted[path.rpartition("/")[2]] += code is grpc.StatusCode.OK
        wrong = code is not identity.expected if identity.expected else code in DEFECTS
        if wrong and not (code is grpc.StatusCode.UNAVAILABLE and _HUB in details):
            self._figures.faults.append(
                f"{path} of {request.rpc.home} with a token that is {identity.kind}: "
                f"{code.name} {details[:200]!r}, sent {message[:80]!r} ({len(message)} B)"
            )


def fuzz(lab: SecuredLab, requests: int, seed: int) -> FuzzResults:
    """Fuzz a new lab; the result includes violations found afterwards."""
    fuzzer = Fuzzer(lab, seed)
    before = contents(lab)
    healthy = {name: check(one, credentials=Credentials()) for name, one in lab.targets.items()}
    figures = fuzzer.run(requests)
    figures.faults += unasked(before, contents(lab), figures.accepted)
    figures.faults += lab.complaints()
    for name, target in lab.targets.items():
        status = check(target, credentials=Credentials())
        if status != healthy[name]:
            figures.faults.append(f"the {name} said {healthy[name]} and says {status}")
    return figures


def _call(channel: grpc.Channel, request: _Request) -> tuple[grpc.StatusCode, str]:
    """Send raw bytes; return status and details of the call."""
    rpc = request.rpc
    endless = rpc.endless and request.identity.expected is None
    seconds = WATCH_SECONDS if endless else HANG_SECONDS
    metadata = request.identity.metadata
    try:
        if rpc.method.client_streaming:
            stream = channel.stream_stream(rpc.path, bytes, bytes)
            call = stream(iter((request.message,)), timeout=seconds, metadata=metadata)
        else:
            single = channel.unary_stream(rpc.path, bytes, bytes)
            call = single(request.message, timeout=seconds, metadata=metadata)
        for _ in call:
            pass
        code, details = grpc.StatusCode.OK, ""
    except grpc.RpcError as error:
        ended = cast("grpc.Call", error)
        code, details = ended.code(), ended.details() or ""
    if endless and code is grpc.StatusCode.DEADLINE_EXCEEDED:
        code = grpc.StatusCode.OK
    return code, details


def _metadata(shown: Credentials) -> Metadata:
    return tuple(shown.metadata())
