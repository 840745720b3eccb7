"""Time to sort, filter and page the candidates of one large run in the web page.

    python -m benchmarks.view_pages [--candidates 100000] [--postgres]

Stores a synthetic finished experiment, writes it as a run directory too, and requests pages of
both. Prints seconds of the first request, which reads the candidates, and of later ones.
"""

import argparse
import asyncio
import hashlib
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import product
from pathlib import Path

import httpx
from sqlmodel import Session, select, update
from starlette.types import ASGIApp

from modnorm.analysis.answers import BASE_INDEX
from modnorm.analysis.export import write_run
from modnorm.files import encode_json, write_file
from modnorm.geometry.scale_map import Norm, ScaleMap, TensorScale
from modnorm.perturbation.descriptor import Descriptor
from modnorm.services.aggregator.experiments.admission import Admission
from modnorm.services.aggregator.experiments.experiment_store import ExperimentStore
from modnorm.services.aggregator.experiments.result_store import ResultStore
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.result_tables import Ensemble, Vote
from modnorm.services.aggregator.storage.states import ExperimentState, JobState, Split
from modnorm.services.aggregator.storage.stored_artifacts import StoredText
from modnorm.services.aggregator.storage.table_statistics import insert_rows
from modnorm.services.aggregator.storage.tables import Experiment, Job
from modnorm.services.aggregator.web.lab_catalog import LabCatalog
from modnorm.services.aggregator.web.page_access import PageAccess
from modnorm.services.aggregator.web.stored_run import PageStores, StoredRun
from modnorm.services.common.access.token_gate import TokenGate
from modnorm.services.common.settings import ServiceSettings
from modnorm.spec import ExperimentSpec, parse_spec
from modnorm.web.app import build_app
from modnorm.web.population import SORT_COLUMNS
from modnorm.web.run_directories import DirectoryCatalog
from verification.labs import servers

EXPERTS, ROWS = 50, 200
FILTERS = ("", "state=failed", "least=0.6", "experts=1")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=100_000)
    parser.add_argument("--postgres", action="store_true", help="instead of SQLite")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _database(Path(folder), options) as database:
        stored = PageStores(database, ExperimentStore(database), ResultStore(database))
        experiment_id = _store(stored, options.candidates)
        directory = Path(folder) / "run"
        _write_directory(stored, experiment_id, directory)
        gate = TokenGate(ServiceSettings())
        lab = build_app(LabCatalog(stored), admit=lambda app: PageAccess(app, gate))
        asyncio.run(_measure("aggregator", lab, f"/runs/{experiment_id}"))
        asyncio.run(_measure("directory", build_app(DirectoryCatalog([directory])), "/runs/run"))


@contextmanager
def _database(folder: Path, options: argparse.Namespace) -> Iterator[Database]:
    with servers.database() if options.postgres else nullcontext() as server:
        url = server.url if server else f"sqlite:///{folder}/modnorm.db"
        database = Database(url)
        database.migrate()
        yield database
        database.close()


async def _measure(name: str, app: ASGIApp, run: str) -> None:
    """Request pages and print their times."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        first = await _seconds(client, f"{run}/candidates")
        later = [
            await _seconds(
                client,
                f"{run}/candidates?sort={column}&descending={descending}&page={page}&{wanted}",
            )
            for column, descending, page, wanted in product(
                SORT_COLUMNS, ("", "1"), (1, 1000), FILTERS
            )
        ]
        whole = [await _seconds(client, run) for _ in range(2)]
    print(
        f"{name}: first page {first:.2f} s; {len(later)} sorted and filtered pages: median "
        f"{statistics.median(later):.3f} s, slowest {max(later):.3f} s; page of the run: first "
        f"{whole[0]:.2f} s, again {whole[1]:.3f} s"
    )


async def _seconds(client: httpx.AsyncClient, address: str) -> float:
    start = time.perf_counter()
    (await client.get(address)).raise_for_status()
    return time.perf_counter() - start


def _store(stored: PageStores, count: int) -> str:
    """Store an experiment that has succeeded; return its id."""
    experiments = stored.experiments
    experiment_id = experiments.create("large", _admission(count)).experiment.id
    experiments.leave_pending(experiment_id, 1)
    maps = (_scale_map("randopt"), _scale_map("base"))
    drawn = [
        Descriptor("portable-v1", seed, "randopt", 0.1, maps[0].digest) for seed in range(count)
    ]
    base = Descriptor("portable-v1", 0, "base", 0.0, maps[1].digest)
    experiments.sampled(experiment_id, maps, base, drawn)
    with stored.database.write() as session:
        rewards = _score(session, experiment_id, count)
        _vote(session, experiment_id, count, rewards)
        experiment = session.get_one(Experiment, experiment_id)
        experiment.state, experiment.end_time = ExperimentState.SUCCEEDED, time.time()
    return experiment_id


def _score(session: Session, experiment_id: str, count: int) -> Sequence[float]:
    """Fill in the selection jobs; one candidate in a hundred fails. Return the rewards."""
    generator = random.Random(0)
    rewards = [generator.random() for _ in range(count)]
    environment = '{"engine": "none"}'
    jobs = session.exec(
        select(Job.id, Job.candidate).where(Job.experiment_id == experiment_id)
    ).all()
    session.execute(
        update(Job),
        [
            {
                "id": job,
                "state": JobState.FAILED if candidate % 100 == 99 else JobState.DONE,
                "metric": None if candidate % 100 == 99 else rewards[candidate],
                "answers_done": ROWS,
                "tokens": generator.randrange(10_000),
                "environment": environment,
            }
            for job, candidate in jobs
        ],
    )
    return rewards


def _vote(session: Session, experiment_id: str, count: int, rewards: Sequence[float]) -> None:
    """Store the held-out jobs of the experts and one vote on every row."""
    scored = [index for index in range(count) if index % 100 != 99]
    experts = sorted(scored, key=lambda index: -rewards[index])[:EXPERTS]
    insert_rows(
        session,
        Job,
        (
            {
                "id": f"heldout {index}",
                "experiment_id": experiment_id,
                "candidate": index,
                "split": Split.HELDOUT,
                "state": JobState.DONE,
                "metric": 0.5,
                "answers_done": ROWS,
            }
            for index in (BASE_INDEX, *experts)
        ),
    )
    session.add(
        Ensemble(
            experiment_id=experiment_id,
            population=count,
            ensemble_size=EXPERTS,
            experts=str(experts),
            metric=0.5,
            correct=ROWS // 2,
            rows=ROWS,
        )
    )
    session.flush()
    insert_rows(
        session,
        Vote,
        (
            {
                "experiment_id": experiment_id,
                "population": count,
                "ensemble_size": EXPERTS,
                "row": row,
                "answer": "1",
                "correct": row % 2 == 0,
                "valid": EXPERTS,
                "support": EXPERTS,
                "correct_support": EXPERTS * (row % 2 == 0),
            }
            for row in range(ROWS)
        ),
    )


def _write_directory(stored: PageStores, experiment_id: str, directory: Path) -> None:
    with stored.database.read() as session:
        experiment = session.get_one(Experiment, experiment_id)
    directory.mkdir()
    write_file(directory / "spec.json", encode_json(experiment.spec.model_dump(mode="json")))
    write_run(directory, StoredRun(stored, experiment).run_data())


def _scale_map(method: str) -> ScaleMap:
    tensor = TensorScale("t", (2, 2), "mlp", "down", 0, Norm.UNIT, 1.0, 1.0, 1.0, 1.0)
    return ScaleMap(method, "0" * 64, (tensor,))


def _spec(count: int) -> ExperimentSpec:
    return parse_spec(
        {
            "model": "none",
            "task": {"name": "countdown", "selection": "s.jsonl", "heldout": "h.jsonl"},
            "method": {"name": "randopt", "sigma": 0.1},
            "population": {"size": count, "ensemble_sizes": [EXPERTS]},
        }
    )


def _admission(count: int) -> Admission:
    text = "\n".join(f'{{"nums":[1,2],"target":{row}}}' for row in range(ROWS))
    rows = StoredText(hashlib.sha256(text.encode()).hexdigest(), text)
    return Admission(
        spec=_spec(count),
        model_digest="0" * 64,
        scorer="countdown-v2",
        max_tokens=128,
        selection=rows,
        selection_rows=ROWS,
        heldout=rows,
        heldout_rows=ROWS,
        needs_profile=False,
        profile=None,
    )


if __name__ == "__main__":
    main()
