"""Scaling of evaluators by KEDA: the jobs that it reads."""

import re
from contextlib import closing

import psycopg
import pytest

from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.tables import OPEN, Job, JobState, Split
from tests.deploy.kubernetes_manifests import ROOT, SCALED, SHOWN_BY_KEDA, TRIGGERS, WORKLOADS


def test_keda_scales_a_workload_with_secrets_that_exist():
    assert SCALED["scaleTargetRef"]["name"] in WORKLOADS
    assert {one["authenticationRef"]["name"] for one in SCALED["triggers"]} == set(SHOWN_BY_KEDA)


@pytest.fixture
def leases(postgres_url):
    """A database with the documented user of KEDA, without foreign keys."""
    role = TRIGGERS["postgresql"]["userName"]
    with closing(Database(postgres_url)) as database:
        database.migrate()
    (grant,) = re.findall(r"GRANT .*;", (ROOT / "docs/deployment-kubernetes.md").read_text())
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute(f"DROP ROLE IF EXISTS {role}")
        connection.execute(f"CREATE ROLE {role}")
        connection.execute(grant)
        connection.execute("SET session_replication_role = replica")  # no foreign keys
        yield connection
        connection.execute("RESET ROLE")
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_keda_counts_lease_holders_and_pending_jobs_and_reads_nothing_else(leases):
    held = [
        *[(JobState.LEASED, worker, Split.SELECTION) for worker in ("a", "a", "b")],
        *[(JobState.PENDING, "c", Split.HELDOUT)] * 17,
        *[(state, "c", Split.HELDOUT) for state in JobState if state not in OPEN],
    ]
    for number, (state, worker, split) in enumerate(held):
        job = Job(
            id=f"j{number}",
            experiment_id="e",
            candidate=number,
            split=split,
            state=state,
            worker=worker,
        ).model_dump()
        names, places = ", ".join(job), ", ".join(["%s"] * len(job))
        leases.execute(f"INSERT INTO jobs ({names}) VALUES ({places})", [*job.values()])
    leases.execute(f"SET ROLE {TRIGGERS['postgresql']['userName']}")
    assert leases.execute(TRIGGERS["postgresql"]["query"]).fetchone() == (3,)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        leases.execute("SELECT environment FROM jobs")
