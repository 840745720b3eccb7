"""Errors, keys, limits and metrics of the HTTP interface."""

import hmac
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.responses import JSONResponse

from modnorm.errors import InvalidInputError, ModnormError
from modnorm.files import read_fault, read_text
from modnorm.prediction.ranked_votes import Prediction


@dataclass
class ApiError(Exception):
    """A refused request."""

    status: int
    message: str
    kind: str = "invalid_request_error"
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message

    def response(self) -> JSONResponse:
        """Return the error in OpenAI's form."""
        content = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return JSONResponse({"error": content}, self.status, dict(self.headers))


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return the error of a malformed request."""
    return ApiError(400, message, code=code, param=param)


def unavailable(message: str) -> ApiError:
    """Return the error of a server that cannot answer now."""
    return ApiError(503, message, kind="server_error", code="unavailable")


def from_library(error: ModnormError) -> ApiError:
    if isinstance(error, InvalidInputError):
        remedy = f" ({error.remedy})" if error.remedy else ""
        return invalid(f"{error.message}{remedy}", "row")
    return ApiError(500, error.message, kind="server_error", code="engine_error")


CHAT = "/v1/chat/completions"
"""The address of questions."""
_STATUSES = ("200", "429", "500", "503")
"""Statuses that show 0 before the first such request: a rate needs a value before it."""
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class ServerMetrics:
    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self._requests = counter(
            "modnorm_serve_requests", "Answered requests.", ("route", "status")
        )
        self._seconds = histogram(
            "modnorm_serve_request_seconds", "Seconds from a request to its answer.", ("route",)
        )
        self._batch = histogram(
            "modnorm_serve_batch_size",
            "Requests of one batch of an engine that switches experts.",
            buckets=_SIZES,
        )
        self._tokens = counter("modnorm_serve_tokens", "Tokens that experts generated.")
        self.open = Gauge(
            "modnorm_serve_open_requests", "Requests that wait or are answered.", registry=registry
        )
        for status in _STATUSES:
            self._requests.labels(CHAT, status)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_batch(self, size: int) -> None:
        self._batch.observe(size)

    def count_answer(self, prediction: Prediction) -> None:
        self._tokens.inc(sum(answer.tokens for answer in prediction.experts))

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


_MOST_BYTES = 2**18
_SHORTEST = 16
_SCHEME = "bearer "


class ApiKeys:
    """Accepts any of the given keys, or every request if there are none."""

    def __init__(self, keys: tuple[str, ...] = ()) -> None:
        self._keys = tuple(key.encode() for key in keys)

    @property
    def are_needed(self) -> bool:
        """Whether requests need a key."""
        return bool(self._keys)

    def check(self, authorization: str) -> None:
        """Check the Authorization header of a request."""
        if not self._keys:
            return
        scheme, given = authorization[: len(_SCHEME)], authorization[len(_SCHEME) :]
        token = given.encode("latin-1").strip()  # as it was decoded
        matches = [hmac.compare_digest(token, key) for key in self._keys]
        if scheme.lower() != _SCHEME or not any(matches):
            raise ApiError(
                401,
                "the API key is missing or not accepted",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )


def read_keys(path: Path) -> ApiKeys:
    """Read a file with one key a line; blank lines and lines that start with # do not count."""
    try:
        lines = [line.strip() for line in read_text(path, most=_MOST_BYTES).splitlines()]
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"cannot read {path}: {read_fault(error)}", field="api-keys"
        ) from error
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys or min(map(len, keys)) < _SHORTEST:
        raise InvalidInputError(
            f"{path} has no key, or one with fewer than {_SHORTEST} characters",
            field="api-keys",
            remedy="write one key a line, for instance of `openssl rand -hex 32`",
        )
    return ApiKeys(keys)


class RequestLimit:
    """Counts requests in progress and refuses those above a limit; used by one event loop."""

    def __init__(self, limit: int, metrics: ServerMetrics) -> None:
        self._limit = limit
        self._metrics = metrics
        self._open = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Count a request inside the context."""
        if self._open >= self._limit:
            raise ApiError(
                429,
                f"{self._limit} requests are in progress, the limit of this server; try again",
                kind="rate_limit_error",
                code="rate_limit_exceeded",
                headers={"Retry-After": "1"},
            )
        self._open += 1
        try:
            with self._metrics.open.track_inprogress():
                yield
        finally:
            self._open -= 1
