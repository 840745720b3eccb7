"""Separate processes, real Postgres, real Redis."""

import json
import signal
from contextlib import ExitStack
from functools import partial

import psycopg
import pytest
import redis

from modnorm.client.connection import list_experiments
from modnorm.spec import load_spec
from verification.labs.bundled_tasks import bundled_task
from verification.labs.waiting import wait_until

pytestmark = pytest.mark.integration

WORD_PROBLEMS = "bundled:word-problems-selection"
JOB_ENDS = {"reported", "released", "the attempt failed"}


@pytest.fixture(scope="module")
def expected(finished, results):
    """What the same spec gives in one process."""
    return results(finished)


@pytest.fixture
def submit(modnorm, lab, spec_file):
    def start():
        ended = modnorm("submit", spec_file, "--server", lab.server, "--again", "--json")
        return json.loads(ended.stdout)["id"]

    return start


@pytest.fixture(scope="module")
def answered(modnorm, lab, spec_file):
    """The id of an experiment of the spec that one evaluator worked on to its end."""
    with lab.evaluator("one"):
        ended = modnorm("submit", spec_file, "--server", lab.server, "--wait", "--json")
    return json.loads(ended.stdout)["id"]


@pytest.fixture
def finish(modnorm, lab, results, tmp_path):
    def wait(experiment_id):
        modnorm("watch", experiment_id, "--server", lab.server)
        modnorm("show", experiment_id, "--server", lab.server, "--out", tmp_path / "run")
        return results(tmp_path / "run")

    return wait


@pytest.fixture
def scored(database_url):
    """Return the worker of each candidate of an experiment that has been scored."""
    query = "SELECT worker FROM jobs WHERE experiment_id = %s AND state = 'done'"

    def workers(experiment_id):
        with psycopg.connect(database_url) as connection:
            return [worker for (worker,) in connection.execute(query, [experiment_id])]

    return workers


def test_one_evaluator_gives_what_an_embedded_run_gives(answered, finish, expected):
    assert finish(answered) == expected


def test_a_killed_evaluator_and_a_flushed_broker_change_nothing(
    lab, submit, finish, expected, broker_url, scored
):
    with lab.evaluator("survivor"), lab.evaluator("victim") as victim:
        experiment_id = submit()
        wait_until(lambda: "victim" in scored(experiment_id), "the victim's first score")
        victim.kill()
        with redis.Redis.from_url(broker_url) as broker:
            broker.flushall()
        assert len(scored(experiment_id)) < 5
        assert finish(experiment_id) == expected


def test_a_drained_evaluator_finishes_or_hands_back(lab, client, write_spec, database_url):
    """One evaluator gets one signal and has time to finish; the other gets two signals."""
    long = write_spec(
        "long",
        task=bundled_task("countdown", selection=48, heldout=8, max_tokens=48),
        method={"name": "randopt", "radius": 0.005},
    )

    def has_begun(name):
        return "loading a model" in lab.events(name)

    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(lab.evaluator(name, MODNORM_STOP_GRACE="600"))
            for name in ("patient", "hurried")
        }
        experiment_id = client.submit(load_spec(long)).id
        connection = stack.enter_context(psycopg.connect(database_url, autocommit=True))
        wait_until(lambda: states(connection, experiment_id), "the selection")
        for name, worker in workers.items():
            wait_until(partial(has_begun, name), f"{name} at work")
            worker.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in lab.events("hurried"), "the stop is heard")
        assert "released" not in lab.events("hurried")
        workers["hurried"].send_signal(signal.SIGINT)
        for worker in workers.values():
            assert worker.wait() == 0
        ends = {name: last_of(lab.events(name), JOB_ENDS) for name in workers}
        assert ends == {"patient": "reported", "hurried": "released"}
        # Nothing is leased, and no attempt was spent in vain.
        assert set(states(connection, experiment_id)) == {("done", 1), ("pending", 0)}
    client.cancel(experiment_id)


def states(connection, experiment_id):
    """Return state and attempts of each job of an experiment."""
    query = "SELECT state, attempts FROM jobs WHERE experiment_id = %s"
    return connection.execute(query, (experiment_id,)).fetchall()


def last_of(events, among):
    return [event for event in events if event in among][-1]


def test_a_cancelled_experiment_stops(lab, modnorm, submit, scored):
    with lab.evaluator("one"):
        experiment_id = submit()
        wait_until(lambda: scored(experiment_id), "the first score")
        ended = modnorm("cancel", experiment_id, "--server", lab.server, "--json")
        assert json.loads(ended.stdout)["state"] == "EXPERIMENT_STATE_CANCELLED"
        watched = modnorm("watch", experiment_id, "--server", lab.server, check=False)
    assert watched.returncode == 1
    assert "cancelled" in watched.stderr


def test_a_request_id_is_one_experiment(modnorm, lab, spec_file, write_spec):
    command = ("--server", lab.server, "--request-id", "mine", "--json")
    first = json.loads(modnorm("submit", spec_file, *command).stdout)
    again = json.loads(modnorm("submit", spec_file, *command).stdout)
    assert again["id"] == first["id"]
    other = modnorm("submit", write_spec("other"), *command, check=False)
    assert other.returncode == 2
    assert json.loads(other.stderr)["error"] == "ConflictError"
    listed = json.loads(modnorm("list", "--server", lab.server, "--json").stdout)
    assert sum(found["request_id"] == "mine" for found in listed) == 1
    modnorm("cancel", first["id"], "--server", lab.server)


def test_a_grid_is_submitted_at_once_and_found_again(lab, client, modnorm, write_spec, tmp_path):
    spec_file = write_spec(
        "grid",
        task__selection={"source": WORD_PROBLEMS, "limit": 2},
        task__heldout={"source": "bundled:word-problems-heldout", "limit": 2},
        method={"name": "randopt", "sigma": {"artifact": str(tmp_path / "radius.json")}},
        population={"size": 1, "ensemble_sizes": [1]},
    )
    rows = ("--heldout", f"{{source: {WORD_PROBLEMS}, offset: 8, limit: 2}}")
    radii = ("--radii", "0.004,0.008", "--seeds", "39", "--server", lab.server, "--json")
    grid = (*radii, *rows)

    def trials():
        known = list_experiments(client)
        return {one.id for one in known if one.request_id.startswith("tune/")}

    with lab.evaluator("one"):
        first = json.loads(modnorm("tune", spec_file, *grid, "--out", tmp_path).stdout)
        known = trials()
        again = modnorm("tune", spec_file, *grid, "--out", tmp_path / "elsewhere")
    assert json.loads(again.stdout) == first
    assert trials() == known
    wrong = modnorm("tune", spec_file, *radii, "--heldout", "absent.jsonl", check=False)
    assert json.loads(wrong.stderr)["field"] == "heldout.source"
    assert len(known) == 2
    assert [one["radius"] for one in first["artifact"]["radii"]] == [0.004, 0.008]
    begun = [client.get(trial) for trial in known]
    assert max(one.created for one in begun) < min(one.ended for one in begun)
