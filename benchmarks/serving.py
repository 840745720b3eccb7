"""Requests a second of a server, asked with Countdown puzzles as fast as it answers.

    modnorm serve RUN
    python -m benchmarks.serving http://127.0.0.1:PORT/v1 [--clients 64] [--requests 500]

RUN is a run of Countdown. The vote of the ensemble and its first expert are asked in turn, each
after a first round that is not counted.
"""

import argparse
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median, quantiles

import httpx

MODELS = ("ensemble", "expert-1")
_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Answer:
    seconds: float
    tokens: int
    skipped: int
    """Experts that were left out."""


def measure(url: str, model: str, clients: int, requests: int) -> str:
    """Ask one model of a server; return the row of the table."""
    _ask_all(url, model, _puzzles(clients, seed=1), clients)
    begun = time.perf_counter()
    answers = _ask_all(url, model, _puzzles(requests, seed=2), clients)
    seconds = time.perf_counter() - begun
    latencies = [answer.seconds for answer in answers]
    cells = (
        model,
        f"{len(answers) / seconds:.1f}",
        f"{sum(answer.tokens for answer in answers) / seconds:,.0f}",
        f"{median(latencies):.2f}",
        f"{quantiles(latencies, n=20)[-1]:.2f}",
        str(sum(answer.skipped for answer in answers)),
    )
    return f"| {' | '.join(cells)} |"


def _puzzles(count: int, seed: int) -> list[dict[str, object]]:
    draw = random.Random(seed)
    return [
        {"numbers": draw.sample(range(1, 100), 4), "target": draw.randint(10, 99)}
        for _ in range(count)
    ]


def _ask_all(
    url: str, model: str, puzzles: Sequence[dict[str, object]], clients: int
) -> list[Answer]:
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
            skipped = content.get("modnorm", {"skipped": 0})["skipped"]
            return Answer(seconds, content["usage"]["completion_tokens"], skipped)

        return list(threads.map(ask, puzzles))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url", help="address that `modnorm serve` prints")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=500)
    options = parser.parse_args()
    print("| answered by | requests/s | tokens/s | median s | 95 % s | skipped |")
    print("|---|---:|---:|---:|---:|---:|")
    for model in MODELS:
        print(measure(options.url, model, options.clients, options.requests), flush=True)


if __name__ == "__main__":
    main()
