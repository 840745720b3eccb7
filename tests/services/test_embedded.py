import json
import logging
import threading
import time
from contextlib import contextmanager

import pytest
from filelock import FileLock, Timeout

from modnorm.calibration.calibrate import calibrate
from modnorm.client.client import Client
from modnorm.client.connection import create_experiment
from modnorm.client.embedded import embedded_client, find_embedded
from modnorm.client.experiments import ExperimentState
from modnorm.client.settings import ClientSettings
from modnorm.engines import load_engine
from modnorm.errors import EngineError, ModnormError, PreconditionError, UnavailableError
from modnorm.services.aggregator.storage import dialects
from modnorm.services.calibrator import servicer as calibration
from modnorm.services.common.healthcheck import check
from modnorm.services.common.settings import SupervisorSettings
from modnorm.services.embedded import start
from modnorm.services.embedded_gpus import make_supervisor
from modnorm.services.embedded_state import DATABASE
from modnorm.services.evaluator.worker import Worker
from modnorm.spec import parse_spec
from modnorm.tasks import catalogue
from modnorm.tasks.catalogue import Dataset, Part, Split
from modnorm.tasks.countdown import Countdown
from modnorm.v1 import common_pb2
from modnorm.v1 import evaluation_pb2 as messages
from tests.delegating import engines_from
from tests.faults import error_at
from verification.fuzz.stored import small_spec as make_spec
from verification.labs.bundled_tasks import bundled_task
from verification.labs.waiting import HANG_SECONDS, wait_until


@contextmanager
def lab_client(state, **named):
    """Run a lab; yield a client of it."""
    with start(state, **named) as lab, Client(lab.target, credentials=lab.credentials) as client:
        yield client


def submit_here(folder, spec):
    """Submit a spec to the lab of a run directory."""
    settings = ClientSettings(cache_dir=folder / "cache")
    with embedded_client(folder, settings) as client:
        client.submit(spec)


def test_a_missing_library_is_named_with_the_remedy(monkeypatch):
    class Point:
        def load(self):
            raise ModuleNotFoundError("No module named 'sqlmodel'", name="sqlmodel")

    monkeypatch.setattr("modnorm.client.embedded.entry_points", lambda group: [Point()])
    with pytest.raises(PreconditionError, match="sqlmodel") as raised:
        find_embedded()
    assert "[services]" in str(raised.value.remedy)


@pytest.fixture
def small_spec():
    task = bundled_task("countdown", selection=2, heldout=2, max_tokens=2)
    return make_spec(task=task, population={"size": 1})


def test_a_missing_engine_is_refused_at_once(tmp_path, small_spec, monkeypatch):
    monkeypatch.setattr("modnorm.services.embedded.engine_names", lambda: ("auto", "transformers"))
    content = {**small_spec.model_dump(mode="json"), "engine": "vllm"}
    with error_at("engine.name", "no engine 'vllm'"):
        submit_here(tmp_path, parse_spec(content))


def test_an_internal_error_names_the_log_of_the_run(tmp_path, small_spec, monkeypatch):
    def defect(*_):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("modnorm.services.aggregator.experiments.admission.check_sandbox", defect)
    with pytest.raises(ModnormError, match="internal error, see the log with id") as raised:
        submit_here(tmp_path, small_spec)
    told, _, place = raised.value.message.rpartition(": ")
    assert place == str(tmp_path / "state" / "lab.log")
    assert told.split()[-1] in (tmp_path / "state" / "lab.log").read_text()


def test_a_task_whose_prompts_raise_is_refused_with_row_and_place(
    tmp_path, small_spec, monkeypatch
):
    def messages(task, row):
        raise KeyError("boo")

    monkeypatch.setattr(Countdown, "messages", messages)
    with error_at("task.name") as refused:
        submit_here(tmp_path, small_spec)
    line = messages.__code__.co_firstlineno + 1
    told = f"task countdown, selection row 0: KeyError: 'boo', raised at {__file__}:{line}"
    assert refused.value.message == told


def write_split(folder, name, answers):
    """Write rows of GSM8K as `modnorm data fetch` does, without a manifest; returns their part."""
    rows = [{"question": f"{name} {n}?", "answer": f"#### {n}"} for n in answers]
    (folder / "gsm8k").mkdir(parents=True)
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / "gsm8k" / f"{name}.jsonl").write_text(lines)
    return Split(len(rows), None, (Part(name),), "all of them")


def test_named_splits_are_looked_for_in_the_cache_and_in_the_data_roots(
    tmp_path, small_spec, idle_workers, monkeypatch
):
    settings = ClientSettings(cache_dir=tmp_path / "cache", data_roots=(tmp_path / "mine",))
    splits = {
        "selection": write_split(settings.fetched_folder, "selection", range(2)),
        "heldout": write_split(tmp_path / "mine", "heldout", range(3)),
    }
    small = Dataset(task="gsm8k", licence="none", splits=splits)
    monkeypatch.setattr(catalogue, "DATASETS", {"gsm8k": small})
    content = small_spec.model_dump(mode="json")
    content["task"] = {"name": "gsm8k", **{name: f"split:gsm8k/{name}" for name in splits}}
    with embedded_client(tmp_path, settings) as client:
        stored = create_experiment(client, parse_spec(content), "once")
        assert create_experiment(client, parse_spec(content), "once").id == stored.id
    assert (stored.provenance.selection_rows, stored.provenance.heldout_rows) == (2, 3)


def test_the_next_lab_reads_stored_experiments(tmp_path, small_spec):
    with lab_client(tmp_path / "state", cache=tmp_path / "cache") as client:
        stored = client.submit(small_spec, "once")
    with lab_client(tmp_path / "state", cache=tmp_path / "cache") as client:
        assert client.submit(small_spec, "once").id == stored.id
        assert [found.id for found in client.list()] == [stored.id]
        list(client.watch(stored.id))
        assert client.get(stored.id).ensembles[0].rows == 2


def test_labs_with_one_cache_load_their_engines_in_turn(tmp_path, small_spec):
    seen = []

    def load(*arguments, **named):
        other = FileLock(tmp_path / "cache" / "engine-load.lock")
        with pytest.raises(Timeout):
            other.acquire(blocking=False)
        seen.append(other)
        return load_engine(*arguments, **named)

    with engines_from(load), lab_client(tmp_path / "state", cache=tmp_path / "cache") as client:
        list(client.watch(client.submit(small_spec).id))
        (other,) = seen
        with other.acquire(blocking=False):
            assert other.is_locked


def test_the_next_lab_has_the_progress_of_stored_jobs(tmp_path, small_spec, idle_workers):
    with lab_client(tmp_path / "state", cache=tmp_path / "cache") as client:
        stored = client.submit(small_spec, "once")
        states = (event.state for event in client.watch(stored.id))
        assert ExperimentState.SELECTING in states
    with lab_client(tmp_path / "state", cache=tmp_path / "cache") as client:
        progress = client.get(stored.id).progress
        assert (progress.jobs_done, progress.jobs_running, progress.jobs_total) == (0, 0, 2)


def test_a_lab_stops_all_threads_and_restores_logging(tmp_path):
    before = set(threading.enumerate())
    handlers = list(logging.getLogger().handlers)
    with start(tmp_path / "state", cache=tmp_path / "cache") as lab:
        assert logging.getLogger().handlers != handlers
    assert logging.getLogger().handlers == handlers
    assert (tmp_path / "state" / "lab.log").stat().st_size > 0
    assert check(lab.target) == "UNAVAILABLE"
    left = {thread.name for thread in set(threading.enumerate()) - before if not thread.daemon}
    assert not [name for name in left if name.startswith("lab")]


def test_a_lab_starts_again_once_a_damaged_database_is_moved_away(tmp_path):
    state, cache = tmp_path / "state", tmp_path / "cache"
    state.mkdir()
    (state / DATABASE).write_bytes(b"damaged" * 1000)
    with pytest.raises(PreconditionError, match="is damaged"), start(state, cache=cache):
        pass
    (state / DATABASE).unlink()
    with start(state, cache=cache) as lab:
        assert check(lab.target, credentials=lab.credentials) == "SERVING"


def wait_until_gone(target):
    wait_until(lambda: check(target) != "SERVING", "the lab is gone")


def foreground(tmp_path):
    """Wait on the lab like a command, until the connection is lost."""
    with start(tmp_path / "state", cache=tmp_path / "cache") as lab:
        wait_until_gone(lab.target)
        raise UnavailableError("what the foreground sees")


def break_down(_worker):
    raise ZeroDivisionError("a defect")


@pytest.mark.parametrize(
    ("run", "kind", "told"),
    [
        (break_down, ZeroDivisionError, "a defect"),
        (lambda _worker: None, EngineError, r"the evaluator ended.*lab\.log"),
    ],
    ids=["broken down", "ended"],
)
def test_an_evaluator_that_ends_by_itself_ends_the_lab(tmp_path, monkeypatch, run, kind, told):
    monkeypatch.setattr(Worker, "run", run)
    with pytest.raises(kind, match=told):
        foreground(tmp_path)


def test_vllm_starts_before_its_first_job(tmp_path, small_spec, monkeypatch):
    loaded = threading.Event()

    def calibrate_later(*arguments, **named):
        assert loaded.wait(HANG_SECONDS)
        return calibrate(*arguments, **named)

    def load(*arguments):
        loaded.set()
        return load_engine(*arguments)

    monkeypatch.setattr("modnorm.services.embedded.is_vllm", lambda name: True)
    monkeypatch.setattr(calibration, "calibrate", calibrate_later)
    content = small_spec.model_dump(mode="json")
    content["method"] = {"name": "modular_norm", "radius": 0.1}
    with engines_from(load), lab_client(tmp_path / "state", cache=tmp_path / "cache") as client:
        experiment = client.submit(parse_spec(content))
        assert list(client.watch(experiment.id))[-1].state is ExperimentState.SUCCEEDED


def test_gpus_have_evaluators_of_their_own_with_the_same_results(
    tmp_path, small_spec, forks, monkeypatch
):
    worker = forks.command("modnorm.services.evaluator.server")
    monkeypatch.setattr("modnorm.services.evaluator.supervisor.COMMAND", worker)

    def answers(name):
        with lab_client(tmp_path / name, cache=tmp_path / f"{name}-cache") as client:
            experiment = client.submit(small_spec)
            assert list(client.watch(experiment.id))[-1].state is ExperimentState.SUCCEEDED
            found = client.get(experiment.id)
            return found.base, found.ensembles

    here = answers("here")
    monkeypatch.setenv("MODNORM_DEVICES", "0,1")  # names: torch for the CPU sees no GPU
    monkeypatch.setenv("MODNORM_TOKEN_FILE", str(tmp_path / "another lab's"))
    assert answers("there") == here
    assert list(tmp_path.glob("there/first-job*")), "their model is loaded at once"


def test_a_lab_with_gpus_ends_without_an_experiment(tmp_path, monkeypatch):
    monkeypatch.setenv("MODNORM_DEVICES", "0")
    with lab_client(tmp_path / "state", cache=tmp_path / "cache") as client:
        assert not list(client.list())


def test_more_ranks_than_gpus_are_refused_with_the_field_of_the_spec(tmp_path):
    model, engine = common_pb2.ModelRef(name="tiny-thicket"), common_pb2.EngineSpec()
    engine.tensor_parallel_size = 2
    job = messages.Job(model=model, engine=engine)
    with error_at("engine.tensor_parallel_size"):
        make_supervisor(SupervisorSettings(), ("0",), job, tmp_path)


def test_evaluators_that_still_start_at_the_end_leave_nothing_behind(
    tmp_path, small_spec, monkeypatch
):
    made, begun = [], threading.Event()

    def make_slowly(*arguments):
        made.append(make_supervisor(*arguments))
        begun.set()
        time.sleep(0.5)
        return made[0]

    monkeypatch.setenv("MODNORM_DEVICES", "0")
    monkeypatch.setattr("modnorm.services.embedded.make_supervisor", make_slowly)
    with lab_client(tmp_path / "state", cache=tmp_path / "cache") as client:
        client.submit(small_spec)
        assert begun.wait(HANG_SECONDS)
    assert not made[0]._folder.exists()


def test_a_cache_that_cannot_be_written_fails_the_experiment(tmp_path, small_spec, monkeypatch):
    monkeypatch.setattr("modnorm.services.embedded._OUTAGE_SECONDS", 0.1)
    cache = tmp_path / "cache"
    (cache / "profiles").mkdir(parents=True)
    (cache / "profiles" / "locks").write_text("no directory: nothing can be written below it")
    content = small_spec.model_dump(mode="json")
    content["method"] = {"name": "modular_norm", "radius": 0.1}
    with lab_client(tmp_path / "state", cache=cache) as client:
        stored = client.submit(parse_spec(content))
        events = list(client.watch(stored.id))
        reason = client.get(stored.id).error
    assert events[-1].state == ExperimentState.FAILED
    assert f"cannot write below {cache / 'profiles'}" in reason


def submit_many(client, spec):
    """Fill the remaining space of the database's file."""
    for number in range(1000):
        client.submit(spec, f"{number}")


@pytest.fixture
def say_before_transactions(monkeypatch):
    """Run a statement on every new connection of a lab."""
    told: list[str] = []
    begin = dialects._begin_sqlite

    def begin_told(connection):
        for pragma in told:
            connection.exec_driver_sql(f"PRAGMA {pragma}")
        begin(connection)

    monkeypatch.setattr(dialects, "_begin_sqlite", begin_told)
    yield told.append
    told.clear()


@pytest.mark.parametrize(
    ("pragma", "said"),
    [("max_page_count = 1", "disk is full"), ("query_only = ON", "readonly database")],
)
def test_a_database_that_cannot_be_written_any_more_ends_the_lab(
    tmp_path, small_spec, idle_workers, say_before_transactions, pragma, said
):
    def go_on():
        with (
            start(tmp_path / "state", cache=tmp_path / "cache") as lab,
            Client(lab.target, credentials=lab.credentials) as client,
        ):
            say_before_transactions(pragma)
            with pytest.raises(UnavailableError):
                submit_many(client, small_spec)
            wait_until_gone(lab.target)

    with pytest.raises(UnavailableError, match=f"modnorm.db cannot be used: .*{said}"):
        go_on()
