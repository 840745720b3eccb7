"""Clients that ask a server as fast as it answers."""

import random
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median, quantiles

import httpx

_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Load:
    """Requests, and how many of them wait for an answer at a time."""

    clients: int
    requests: int


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer."""

    seconds: float
    tokens: int
    skipped: int
    """Experts that were left out."""
    vote: str | None
    completions: Mapping[int, str]
    """Of each expert that answered."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a server answered."""

    requests_per_second: float
    tokens_per_second: float
    median_seconds: float
    slow_seconds: float
    """Seconds that 95 % of the requests took at most."""
    skipped: int
    """Answers of experts that were left out, of all requests."""


def measure(url: str, model: str, load: Load) -> tuple[Speed, list[Answer]]:
    """Return a server's speed and answers, after a first round that is not counted."""
    _ask_all(url, model, _puzzles(load.clients, seed=1), load.clients)
    begun = time.perf_counter()
    answers = _ask_all(url, model, _puzzles(load.requests, seed=2), load.clients)
    seconds = time.perf_counter() - begun
    latencies = [answer.seconds for answer in answers]
    speed = Speed(
        len(answers) / seconds,
        sum(answer.tokens for answer in answers) / seconds,
        median(latencies),
        quantiles(latencies, n=20)[-1],
        sum(answer.skipped for answer in answers),
    )
    return speed, answers


def _puzzles(count: int, seed: int) -> list[dict[str, object]]:
    draw = random.Random(seed)
    return [
        {"numbers": draw.sample(range(1, 100), 4), "target": draw.randint(10, 99)}
        for _ in range(count)
    ]


def _ask_all(url: str, model: str, puzzles: list[dict[str, object]], clients: int) -> list[Answer]:
    """Return the answers, in the order of the puzzles."""
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    with (
        httpx.Client(base_url=url, timeout=_TIMEOUT_S, limits=limits) as connections,
        ThreadPoolExecutor(clients) as threads,
    ):

        def ask(row: dict[str, object]) -> Answer:
            begun = time.perf_counter()
            response = connections.post("/chat/completions", json={"model": model, "row": row})
            response.raise_for_status()
            seconds, content = time.perf_counter() - begun, response.json()
            vote = content.get("modnorm", {"experts": [], "skipped": 0, "answer": None})
            return Answer(
                seconds,
                content["usage"]["completion_tokens"],
                vote["skipped"],
                vote["answer"],
                {each["expert"]: each["completion"] for each in vote["experts"]},
            )

        return list(threads.map(ask, puzzles))
