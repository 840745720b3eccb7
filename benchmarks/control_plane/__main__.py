"""Load test of a lab's control plane with simulated evaluators and no model.

    python -m benchmarks.control_plane [--sizes 1000 6000] [--evaluators 400]
        [--work-seconds 0.92]

Starts Postgres (durable, default settings), Redis, the sampler and the aggregator in separate
processes, and simulated evaluators in another. For each size an experiment is created over gRPC.
The output lists the rate of reports, latencies at the evaluators, and the time of both ends of
the selection. It also lists the aggregator's memory and the CPU time of each process.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import quantiles

from benchmarks.control_plane.evaluators import Measured
from benchmarks.control_plane.processes import Usage, observed, service
from modnorm.client.client import Client
from modnorm.client.experiments import ExperimentState
from modnorm.spec import ExperimentSpec, parse_spec
from verification.labs.servers import broker, database

AGGREGATOR = "aggregator"
DATABASE = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
"""Settings of the database for the load; the others have defaults."""
LARGEST_K = 50
RAMP_SHARE = 0.1
"""Share of reports at either end (start and tail) that sustained figures exclude, with the calls
in these periods."""


@dataclass(frozen=True)
class Lab:
    target: str
    """HOST:PORT of the aggregator."""
    processes: dict[str, int]
    """Ids of the servers' processes by name."""


def _start(stack: ExitStack) -> Lab:
    cache = stack.enter_context(tempfile.TemporaryDirectory(prefix="modnorm-"))
    postgres = stack.enter_context(database(DATABASE))
    redis = stack.enter_context(broker())
    sampler_target, sampler = stack.enter_context(service("sampler", {"cache_dir": cache}))
    settings = {
        "database_url": postgres.url,
        "broker_url": redis.url,
        "sampler_target": sampler_target,
        "log_level": "INFO",
    }
    target, aggregator = stack.enter_context(service(AGGREGATOR, settings))
    processes = {
        "postgres": postgres.pid,
        "redis": redis.pid,
        "sampler": sampler,
        AGGREGATOR: aggregator,
    }
    return Lab(target, processes)


def _spec(size: int) -> ExperimentSpec:
    return parse_spec(
        {
            "name": f"load {size}",
            "reuse": False,
            "model": "tiny-thicket",
            "task": {
                "name": "countdown",
                "selection": {"source": "bundled:countdown-selection", "limit": 1},
                "heldout": {"source": "bundled:countdown-heldout", "limit": 1},
                "max_tokens": 128,
            },
            "method": {"name": "randopt", "sigma": 0.016},
            "population": {"size": size, "ensemble_sizes": [1, min(LARGEST_K, size)]},
        }
    )


def _measure(lab: Lab, size: int, options: argparse.Namespace) -> None:
    """Run one experiment and print its figures."""
    with Client(lab.target) as client:
        start = time.monotonic()
        created = client.submit(_spec(size)).id
        _wait_for_selection(client, created)
        began = time.monotonic()
        with observed(lab.processes, AGGREGATOR) as usage:
            measured = _evaluate(lab, created, options)
        final = client.get(created)
    print(f"N = {size}: {final.state} {final.error}", flush=True)
    print(f"  from creation to the first job {began - start:.2f} s")
    _print_calls(measured)
    _print_usage(usage, measured)


def _wait_for_selection(client: Client, experiment_id: str) -> None:
    states = (event.state for event in client.watch(experiment_id))
    if ExperimentState.SELECTING not in states:
        raise SystemExit(client.get(experiment_id).error or "the experiment has ended")


def _evaluate(lab: Lab, experiment_id: str, options: argparse.Namespace) -> Measured:
    command = [
        *(sys.executable, "-m", "benchmarks.control_plane.evaluators"),
        *("--target", lab.target, "--experiment", experiment_id),
        *("--evaluators", str(options.evaluators)),
        *("--work-seconds", str(options.work_seconds)),
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return Measured(**json.loads(done.stdout))


def _print_calls(measured: Measured) -> None:
    times = measured.reported
    middle = _middle(times)
    rate = (len(middle) - 1) / (middle[-1] - middle[0])
    print(
        f"  {len(times)} reports of {measured.report_bytes} bytes in "
        f"{times[-1] - times[0]:.1f} s, sustained {rate:.0f} /s; {measured.unclaimed} empty "
        f"claims, {measured.stale} stale, {len(measured.errors)} errors"
    )
    for error in sorted(set(measured.errors))[:3]:
        print(f"    {error}")
    for name, calls in measured.calls.items():
        if calls:
            seconds = [one for _, one in calls]
            sustained = _milliseconds(
                [one for end, one in calls if middle[0] <= end <= middle[-1]]
            )
            worst = 1000 * max(seconds)
            print(
                f"  {name}: sustained {sustained}; with start and tail {_milliseconds(seconds)}, "
                f"max {worst:.0f}"
            )


def _middle(values: Sequence[float]) -> Sequence[float]:
    """Return the measurements between start and tail."""
    cut = int(len(values) * RAMP_SHARE)
    return values[cut : len(values) - cut]


def _milliseconds(seconds: Sequence[float]) -> str:
    if len(seconds) < 2:
        return "none"
    cuts = quantiles(seconds, n=1000, method="inclusive")
    p50, p99, p999 = (1000 * cuts[place] for place in (499, 989, 998))
    return f"p50 {p50:.1f} ms, p99 {p99:.1f}, p99.9 {p999:.1f}"


def _print_usage(usage: Usage, measured: Measured) -> None:
    steps = usage.memory[:: max(1, len(usage.memory) // 10)]
    print(
        "  memory of the aggregator:", *(f"{when:.0f} s {mib:.0f}" for when, mib in steps), "MiB"
    )
    usage.cpu["evaluators"] = measured.cpu
    reports = len(measured.reported)
    cpu = ", ".join(f"{name} {1e6 * used / reports:.0f}" for name, used in usage.cpu.items())
    print(f"  processor microseconds a report: {cpu}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1000, 6000], help="N of each experiment"
    )
    parser.add_argument("--evaluators", type=int, default=400)
    parser.add_argument(
        "--work-seconds", type=float, default=0.92, help="mean seconds of a job's work"
    )
    options = parser.parse_args()
    with ExitStack() as stack:
        lab = _start(stack)
        for size in options.sizes:
            _measure(lab, size, options)


if __name__ == "__main__":
    main()
