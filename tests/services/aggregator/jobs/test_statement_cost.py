"""The database cost of a worker's calls does not depend on the population."""

import pytest
from sqlalchemy import text

from modnorm.services.aggregator.jobs.worker_requests import Claim
from modnorm.services.aggregator.storage.states import FailureKind

STEPS = 50
"""Instructions of SQLite's virtual machine between two counts."""


def half_scored(world, size):
    """Store an experiment with a scored base and half of the candidates scored."""
    failures = {"max_failed_candidates": size}
    created = world.select(f"of {size}", size=size, ensemble_sizes=[1, 8], failures=failures)
    done = size // 2
    scores = text(
        "UPDATE jobs SET state = 'done', metric = (candidate * 7919 % 1009) / 1009.0"
        " WHERE experiment_id = :id AND candidate < :done"
    )
    count = text("UPDATE experiments SET jobs_done = :done + 1 WHERE id = :id")
    with world.database.write() as session:
        for statement in (scores, count):
            session.execute(statement, {"id": created, "done": done})
    return created


def steps_of(world, work):
    """Count SQLite's steps for some work."""
    ticks = []
    with world.database.read() as session:
        connection = session.connection().connection.driver_connection
    connection.set_progress_handler(lambda: ticks.append(1), STEPS)
    try:
        work()
    finally:
        connection.set_progress_handler(None, 0)
    assert ticks
    return len(ticks)


def costs(world, size):
    created = half_scored(world, size)
    jobs, experiments = world.stores.jobs, world.stores.experiments
    claims = list[Claim | None]()
    claiming = steps_of(world, lambda: claims.extend([jobs.claim("w"), jobs.claim("w")]))
    scored, failed = (one for one in claims if one)
    report = world.report_of(scored)
    kind = FailureKind.CANDIDATE
    return {
        "claim": claiming,
        "report": steps_of(world, lambda: jobs.report(report)),
        "fail": steps_of(world, lambda: jobs.fail(failed.job.id, failed.job.token, kind, "nan")),
        "get": steps_of(world, lambda: experiments.get(created)),
    }


@pytest.fixture
def database_url(tmp_path):
    """SQLite only, which counts its steps."""
    return f"sqlite:///{tmp_path}/modnorm.db"


def test_calls_cost_the_same_in_a_large_population(world):
    small, large = costs(world, 50), costs(world, 2000)
    assert all(large[call] <= 2 * small[call] + 5 for call in small), (small, large)
