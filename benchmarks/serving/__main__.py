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
import signal
from pathlib import Path

from benchmarks.serving.load import Load, measure
from benchmarks.serving.measured_server import MODELS, ServingPlan, run_server
from benchmarks.serving.random_model import make_model
from benchmarks.serving.report import Row, print_table
from benchmarks.serving.server_process import ServerProcess
from benchmarks.shapes import SHAPES


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


if __name__ == "__main__":
    main()
