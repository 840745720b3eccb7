"""Requests a second and GPU memory of a served ensemble.

    python -m benchmarks.serving --out runs/serving [--model tiny-thicket] [--shape 1.5b]
        [--experts 10] [--clients 64] [--requests 500] [--max-tokens 128]
        [--cache-gib 16] [--sigma 0.004] [--max-length 1024]

The server is a process of its own, asked over HTTP with Countdown puzzles. Its experts are drawn
from a scale map of `randopt`, without a search. `--shape` writes a model of random weights first;
its answers are of no use and reach the cap, so no vote is settled early and every expert answers
in full. It needs vLLM.

The log, and the rows as JSON, go to the folder.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.serving.load import Answer, Load, Speed, measure
from benchmarks.serving.measured_server import MODELS, ServingPlan, run_server
from benchmarks.serving.random_model import make_model
from benchmarks.shapes import SHAPES

_LABELS = {"ensemble": "vote of {experts} experts, in turns", "expert-1": "one of those experts"}
_HEAD = (
    "answered by", "requests/s", "tokens/s", "median s", "95 % s", "skipped", "GPU GiB", "start s",
)  # fmt: skip


_START_SECONDS = 300
_STOP_SECONDS = 60
_FREEING_SECONDS = 2
"""Time in which a driver frees the memory of an ended process."""


def main() -> None:
    """Measure and print the table; with `--serve`, be the server."""
    options = _options()
    model = _model(options)
    asked = ServingPlan(
        model, options.experts, options.sigma, options.max_tokens,
        options.max_length, options.cache_gib, options.clients,
    )  # fmt: skip
    if options.serve:
        run_server(asked, options.out / "server.json")
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a limit of time ends the servers
    options.out.mkdir(parents=True, exist_ok=True)
    load = Load(options.clients, options.requests)
    rows: list[Row] = []
    with ServerProcess(options.out) as server:
        for name in MODELS:
            speed, answers = measure(server.url, name, load)
            rows.append(Row(name, server.gpu_bytes, server.started_seconds, speed, answers))
    (options.out / "serving.json").write_text(json.dumps([row.document() for row in rows]))
    print_table(rows, asked)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="tiny-thicket", help="a checkpoint or its folder")
    parser.add_argument("--shape", choices=sorted(SHAPES), help="write and use a random model")
    parser.add_argument("--experts", type=int, default=10)
    parser.add_argument("--sigma", type=float, default=0.004)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--max-length", type=int, default=1024)
    parser.add_argument("--cache-gib", type=float, default=16)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _model(options: argparse.Namespace) -> str:
    """Return the model; write a random one if a shape is given."""
    if options.shape is None:
        return str(options.model)
    folder: Path = options.out / f"model-{options.shape}"
    if not (folder / "model.safetensors").is_file():
        make_model(folder, options.shape, seed=1, device="cpu")
    return str(folder.absolute())


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement."""

    model: str
    gpu_bytes: int | None
    """Memory of the GPU that the server took, after the requests."""
    started_seconds: float
    speed: Speed
    answers: Sequence[Answer]

    def document(self) -> dict[str, object]:
        """Return it as JSON."""
        return asdict(self)


def print_table(rows: Sequence[Row], asked: ServingPlan) -> None:
    """Print the rows, then the sizes of experts."""
    print(f"| {' | '.join(_HEAD)} |")
    print(f"|---|{'---:|' * (len(_HEAD) - 1)}")
    for row in rows:
        print(f"| {' | '.join(_cells(row, asked))} |")
    weights = sum(each.stat().st_size for each in _weights(asked))
    print(
        f"\nOn disk a checkpoint has {weights / 2**20:.1f} MiB. "
        f"{asked.experts} held at once would take {asked.experts * weights / 2**30:.2f} GiB. "
        f"Key-value cache: {asked.cache_gib:g} GiB."
    )


def _cells(row: Row, asked: ServingPlan) -> Sequence[str]:
    label = _LABELS[row.model].format(experts=asked.experts)
    speed = row.speed
    return (
        label,
        f"{speed.requests_per_second:.1f}",
        f"{speed.tokens_per_second:,.0f}",
        f"{speed.median_seconds:.2f}",
        f"{speed.slow_seconds:.2f}",
        str(speed.skipped),
        "-" if row.gpu_bytes is None else f"{row.gpu_bytes / 2**30:.2f}",
        f"{row.started_seconds:.0f}",
    )


def _weights(asked: ServingPlan) -> Sequence[Path]:
    return list(asked.checkpoint().directory.glob("*.safetensors"))


class ServerProcess:
    """Runs the server with the options of this process.

    Args:
        folder: Gets the server's log and its address.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready = folder / "server.json"
        self.url = ""
        self.started_seconds = 0.0

    def __enter__(self) -> Self:
        """Start the server and wait until it answers."""
        self._ready.unlink(missing_ok=True)
        self._before, begun = _gpu_bytes(), time.monotonic()
        command = [sys.executable, "-m", "benchmarks.serving", *sys.argv[1:], "--serve"]
        with (self._folder / "server.log").open("w") as log:
            # A session of its own: its processes end with it.
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        while not self._ready.is_file():
            late = time.monotonic() - begun > _START_SECONDS
            if late or self._process.poll() is not None:
                self._end()
                raise SystemExit(f"the server did not start: see {log.name}")
            time.sleep(0.2)
        self.url = json.loads(self._ready.read_text())["url"]
        self.started_seconds = time.monotonic() - begun
        return self

    @property
    def gpu_bytes(self) -> int | None:
        """Memory of the GPU that the server takes now; None without a GPU."""
        now = _gpu_bytes()
        return None if now is None or self._before is None else now - self._before

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the server and wait until its memory is free."""
        self._end()

    def _end(self) -> None:
        self._process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        with suppress(ProcessLookupError):  # no process of its session is left
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        time.sleep(_FREEING_SECONDS)


def _gpu_bytes() -> int | None:
    """Return the memory in use on the first visible GPU, by all processes; None without a GPU."""
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]  # noqa: TID251 - CUDA's own variable
    query = ("--query-gpu=memory.used", "--format=csv,noheader,nounits")
    command = ["nvidia-smi", *query, "-i", device]
    try:
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return int(text) * 2**20


if __name__ == "__main__":
    main()
