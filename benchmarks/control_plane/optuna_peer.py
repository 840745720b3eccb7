"""Throughput of Optuna's RDB storage behind its gRPC proxy: trials asked and told per second.

    python -m benchmarks.control_plane.optuna_peer --python VENV/bin/python [--workers 16]
        [--seconds 30] [--postgres FOLDER]

A comparison for `benchmarks.control_plane` on the same machine and Postgres. Optuna is not
installed beside this project but in a separate environment, which `--python` names:

    python -m venv VENV && VENV/bin/pip install optuna==5.0.0 grpcio protobuf "psycopg[binary]"

The proxy is one process, workers are threads of another. Each asks for a trial and tells one
value without work. Sampling is random without parameters, so that only the storage is
measured. A trial is one ask and one tell, as a job is one claim and one report.
"""

import argparse
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.control_plane.service_processes import DATABASE
from verification.labs.servers import database, free_port

_PROXY = """
import sys
from optuna.storages import RDBStorage, run_grpc_proxy_server
run_grpc_proxy_server(RDBStorage(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]))
"""
_WORKERS = """
import sys, threading, time
import optuna
from optuna.samplers import RandomSampler
from optuna.storages import GrpcStorageProxy

optuna.logging.set_verbosity(optuna.logging.WARNING)
port, workers, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
storage = GrpcStorageProxy(host="127.0.0.1", port=port)
storage.wait_server_ready(timeout=60)
name = optuna.create_study(storage=storage).study_name
times, end = [], time.monotonic() + seconds

def work():
    study = optuna.load_study(study_name=name, storage=storage, sampler=RandomSampler())
    while time.monotonic() < end:
        start = time.perf_counter()
        study.tell(study.ask(), 1.0)
        times.append(time.perf_counter() - start)

threads = [threading.Thread(target=work) for _ in range(workers)]
start = time.monotonic()
for thread in threads: thread.start()
for thread in threads: thread.join()
taken = time.monotonic() - start
times.sort()
print(f"{workers} workers: {len(times)} trials, {len(times) / taken:.1f} /s, ask and tell p50 "
      f"{1000 * times[len(times) // 2]:.0f} ms, p99 {1000 * times[len(times) * 99 // 100]:.0f} ms")
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, required=True, help="Python with Optuna")
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--seconds", type=float, default=30.0, help="of each")
    parser.add_argument("--postgres", type=Path, help="folder of Postgres's programs")
    options = parser.parse_args(arguments)
    with database(DATABASE, options.postgres) as postgres:
        storage, port = postgres.url.replace("postgresql:", "postgresql+psycopg:"), free_port()
        proxy = subprocess.Popen([options.python, "-c", _PROXY, storage, str(port)])
        try:
            time.sleep(5)
            for workers in options.workers:
                command = [options.python, "-c", _WORKERS, port, workers, options.seconds]
                subprocess.run([str(part) for part in command], check=True)
        finally:
            proxy.terminate()
            proxy.wait()


if __name__ == "__main__":
    main()
