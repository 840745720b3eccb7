"""Prometheus metrics of a server."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from modnorm.prediction.ranked_votes import Prediction

ROUTES = ("/v1/chat/completions", "/v1/completions")
"""The addresses of questions."""
_STATUSES = ("200", "429", "500", "503")
"""Statuses that show 0 before the first such request: a rate needs a value before it."""
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class ServerMetrics:
    """Metrics of one server.

    Args:
        registry: Their registry; by default a new one.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._registry = registry or CollectorRegistry()
        self._requests = Counter(
            "modnorm_serve_requests",
            "Answered requests.",
            ("route", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "modnorm_serve_request_seconds",
            "Seconds from a request to its answer.",
            ("route",),
            registry=self._registry,
        )
        self._batch = Histogram(
            "modnorm_serve_batch_size",
            "Requests of one batch of an engine that switches experts.",
            buckets=_SIZES,
            registry=self._registry,
        )
        self._tokens = Counter(
            "modnorm_serve_tokens", "Tokens that experts generated.", registry=self._registry
        )
        self.open = Gauge(
            "modnorm_serve_open_requests",
            "Requests that wait or are answered.",
            registry=self._registry,
        )

        for route in ROUTES:
            for status in _STATUSES:
                self._requests.labels(route, status)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_batch(self, size: int) -> None:
        """Count a batch of a switching engine."""
        self._batch.observe(size)

    def count_answer(self, prediction: Prediction) -> None:
        """Count the tokens of an answer."""
        self._tokens.inc(sum(answer.tokens for answer in prediction.experts))

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
