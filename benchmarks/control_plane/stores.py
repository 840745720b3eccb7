"""Cost of claims, reports and both ends of a selection in the aggregator's stores, by N.

    python -m benchmarks.control_plane.stores [--sizes 1000 10000 100000] [--batch 50]
        [--answers 1] [--postgres FOLDER]

No gRPC and no evaluators: one thread claims and reports in batches, like concurrent
calls, with a durable Postgres. Prints seconds, CPU seconds and memory of this process.
"""

import argparse
import hashlib
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.control_plane.service_processes import DATABASE
from modnorm.geometry.scale_map import Norm, ScaleMap, TensorScale
from modnorm.perturbation.descriptor import Descriptor
from modnorm.spec import ExperimentSpec, parse_spec
from services.aggregator.experiments.admission import Admission
from services.aggregator.experiments.experiment_store import ExperimentStore
from services.aggregator.jobs.job_store import Claim, ClaimRequest, JobStore
from services.aggregator.jobs.report_checks import Report
from services.aggregator.storage.codec import StoredAnswer
from services.aggregator.storage.database import Database
from services.aggregator.storage.stored_artifacts import StoredText
from verification.labs import servers

ACTIVE = 60
MEASURED = 1_000
"""Number of measured reports in the middle of a selection; the others are skipped."""


def _scale_map(method: str, active: int) -> ScaleMap:
    tensors = (
        TensorScale(f"t{i}", (2, 2), "mlp", "down", i, Norm.UNIT, 1.0, 1.0, 1.0, 1.0)
        for i in range(active)
    )
    return ScaleMap(method, "0" * 64, tuple(tensors))


def _spec(size: int) -> ExperimentSpec:
    return parse_spec(
        {
            "model": "none",
            "task": {"name": "countdown", "selection": "s.jsonl", "heldout": "h.jsonl"},
            "method": {"name": "randopt", "sigma": 0.1},
            "population": {"size": size, "ensemble_sizes": [1, 50]},
        }
    )


def _admission(size: int, answers: int) -> Admission:
    text = "\n".join(f'{{"nums":[1,2],"target":{row}}}' for row in range(answers))
    rows = StoredText(hashlib.sha256(text.encode()).hexdigest(), text)
    return Admission(
        spec=_spec(size),
        model_digest="0" * 64,
        scorer="none",
        max_tokens=128,
        selection=rows,
        selection_rows=answers,
        heldout=rows,
        heldout_rows=answers,
        needs_profile=False,
        profile=None,
    )


def _report(claim: Claim, answers: int) -> Report:
    one = claim.candidate
    values = () if one.is_base else (0.5,) * ACTIVE
    descriptor = Descriptor(
        one.noise, one.seed, one.method, one.radius, one.scale_map_digest, values
    )
    return Report(
        job_id=claim.job.id,
        token=claim.job.token,
        worker="worker",
        descriptor=descriptor,
        answers=[
            StoredAnswer(
                row=row,
                completion="x" * 40,
                reward=(one.index % 997) / 997,
                vote="1",
                correct=True,
                tokens=9,
                truncated=False,
            )
            for row in range(answers)
        ],
        environment={"engine": "none"},
        switch_seconds=0.0,
        generate_seconds=0.0,
        score_seconds=0.0,
    )


class _Bench:
    """An experiment of one size and its measurements."""

    def __init__(self, database: Database, size: int, options: argparse.Namespace) -> None:
        self._experiments = ExperimentStore(database)
        self._jobs = JobStore(database, lease_seconds=600)
        self._size, self._options = size, options

    def run(self) -> None:
        """Measure and print."""
        created = self._experiments.create(
            f"{self._size}-{time.time_ns()}", _admission(self._size, self._options.answers)
        )
        experiment_id = created.experiment.id
        self._experiments.leave_pending(experiment_id, 1)
        maps = (_scale_map("randopt", ACTIVE), _scale_map("base", 0))
        drawn = [
            Descriptor("portable-v1", seed, "randopt", 0.1, maps[0].digest)
            for seed in range(self._size)
        ]
        base = Descriptor("portable-v1", 0, "base", 0.0, maps[1].digest)
        print(f"N = {self._size}")
        _timed(
            "create jobs", 1, lambda: self._experiments.sampled(experiment_id, maps, base, drawn)
        )
        ids = self._jobs.pending(experiment_id)
        self._work("at the start", ids[:MEASURED])
        for start in range(MEASURED, len(ids) - MEASURED - 1, 500):
            self._answer(ids[start : start + 500])
        rest = ids[max(MEASURED, len(ids) - MEASURED - 1) :]
        if len(rest) > 1:
            self._work("at the end", rest[:-1])
        _timed("claim and last report", 1, lambda: self._answer(rest[-1:]))

    def _work(self, when: str, ids: Sequence[str]) -> None:
        size = self._options.batch
        batches = [ids[start : start + size] for start in range(0, len(ids), size)]

        def work() -> None:
            for batch in batches:
                self._answer(batch)

        _timed(f"claim and report {when}", len(ids), work)

    def _answer(self, ids: Sequence[str]) -> None:
        reports = []
        for claim in self._jobs.claim_all([ClaimRequest(one, "worker") for one in ids]):
            if not isinstance(claim, Claim):
                raise SystemExit(f"a job was not claimed, so nothing is measured: {claim}")
            reports.append(_report(claim, self._options.answers))
        for outcome in self._jobs.report_all(reports):
            if isinstance(outcome, Exception):
                raise outcome


def _timed(what: str, count: int, work: Callable[[], object]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    each = f", {1e6 * cpu / count:.0f} us of processor each" if count > 1 else ""
    print(
        f"  {what}: {wall:.2f} s, {cpu:.2f} s of processor{each}, peak {peak:.0f} MiB", flush=True
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--batch", type=int, default=50, help="calls per transaction")
    parser.add_argument("--answers", type=int, default=1, help="answers per report")
    parser.add_argument("--postgres", type=Path, help="folder of Postgres's programs")
    options = parser.parse_args(arguments)
    with servers.database(DATABASE, options.postgres) as postgres:
        database = Database(postgres.url)
        database.migrate()
        for size in options.sizes:
            _Bench(database, size, options).run()
        database.close()


if __name__ == "__main__":
    main()
