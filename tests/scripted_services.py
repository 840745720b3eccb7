"""A real gRPC server on loopback whose service does what a test tells it."""

import hashlib
import json
import socket
from concurrent import futures
from contextlib import ExitStack, contextmanager
from dataclasses import asdict

import grpc
import pytest
from grpc_status import rpc_status

from modnorm import Client
from modnorm.analysis.export import write_run
from modnorm.analysis.run_data import BaseRow, CandidateRow, EnsembleRow, RunData
from modnorm.analysis.run_files import rows_file
from modnorm.cli.console import as_dict
from modnorm.client.connection import _CHANNEL_OPTIONS, Connection
from modnorm.files import encode_json, write_file
from modnorm.search.answers import SPLITS, AnswerRecord
from modnorm.search.voting import Ballot, count_votes
from modnorm.spec import parse_spec
from modnorm.tasks import get_stored_task, get_task
from modnorm.tasks.columns import encode_rows
from modnorm.tasks.row_loading import readable_rows
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.v1.experiment_pb2_grpc import (
    ExperimentServiceServicer,
    add_ExperimentServiceServicer_to_server,
)
from modnorm.wire.conversions import from_message, spec_from_proto, spec_to_proto
from modnorm.wire.status import to_status
from tests.small_results import rows_record


@contextmanager
def served(servicer, address="127.0.0.1:0", add=add_ExperimentServiceServicer_to_server):
    """Serve a servicer, which `add` adds to the server; yields the target."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    add(servicer, server)
    port = server.add_insecure_port(address)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def refuse(context, error):
    """End a call with the status of an error."""
    context.abort_with_status(rpc_status.to_status(to_status(error)))


@pytest.fixture
def servicer():
    """Make a servicer whose methods are functions of request and context; others are missing."""

    def make(**methods):
        members = {name: staticmethod(method) for name, method in methods.items()}
        return type("Service", (ExperimentServiceServicer,), members)()

    return make


@pytest.fixture
def serve():
    """Start a server of a servicer; returns its target."""
    with ExitStack() as stack:
        yield lambda *given: stack.enter_context(served(*given))


@pytest.fixture
def connect():
    """Open a client; the arguments are those of `Client`."""
    with ExitStack() as stack:
        yield lambda target, **options: stack.enter_context(Client(target, **options))


@pytest.fixture
def quick_retries(monkeypatch):
    """Retry calls as often as ever, but at once; give up a watch after half a second."""
    config = str(dict(_CHANNEL_OPTIONS)["grpc.service_config"])
    quick = config.replace('"0.1s"', '"0.002s"').replace('"2s"', '"0.03s"')
    options = {**dict(_CHANNEL_OPTIONS), "grpc.service_config": quick}
    monkeypatch.setattr("modnorm.client.connection._CHANNEL_OPTIONS", tuple(options.items()))
    monkeypatch.setitem(Connection.__init__.__kwdefaults__, "patience", 0.5)


@pytest.fixture
def spec():
    return parse_spec(
        {
            "name": "small",
            "model": "tiny-thicket",
            "task": {
                "name": "countdown",
                "selection": "bundled:countdown-selection",
                "heldout": "bundled:countdown-heldout",
            },
            "method": {"name": "randopt", "sigma": 0.005},
            "population": {"size": 4, "ensemble_sizes": [1, 2]},
        }
    )


@pytest.fixture
def claim(spec):
    """Make a directory that holds nothing but its spec."""

    def make(path):
        path.mkdir(parents=True)
        (path / "spec.json").write_text(json.dumps(spec.model_dump(mode="json")))
        return path

    return make


@pytest.fixture
def free_address():
    """An address on which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    return f"127.0.0.1:{port}"


def write_stored(directory, experiment, candidates, rows, answers, descriptors=(), texts=None):
    """Write the directory of an experiment, as the aggregator does.

    `candidates` are rows, the base first. `answers` are completions and their judgements by
    candidate and split, `rows` by split.
    """
    rows = {split: encode_rows(rows.get(split, ())) for split in SPLITS}
    named = experiment.spec.task
    task = get_stored_task(named.name, declaration=named.declaration or None)
    questions = {split: readable_rows(task, each) for split, each in rows.items()}
    ensembles = [from_message(EnsembleRow, each) for each in experiment.ensembles]
    ballots = {
        candidate: Ballot.from_answers(judged for _, judged in each)
        for (candidate, split), each in answers.items()
        if split == "heldout"
    }
    spec = spec_from_proto(experiment.spec)
    run = RunData(
        spec=spec.model_dump(mode="json"),
        provenance=as_dict(experiment.provenance),
        data={
            split: rows_record(len(rows[split]), named.source, "")
            for split, named in (
                ("selection", spec.task.selection),
                ("heldout", spec.task.heldout),
            )
        },
        candidates=[each for each in candidates if each.index >= 0],
        base=CandidateRow(-1, 0, "scored", **asdict(from_message(BaseRow, experiment.base))),
        ensembles=ensembles,
        votes={
            each.place: count_votes([ballots[expert] for expert in each.experts])
            for each in ensembles
            if rows["heldout"]
        },
        timings={"experiment": experiment.id, "phases": {}},
    )
    (directory / "rows").mkdir(parents=True, exist_ok=True)
    for split, lines in rows.items():
        write_file(directory / rows_file(split), "".join(f"{row}\n" for row in lines).encode())
    for name, text in (texts or {}).items():
        write_file(directory / name, text.encode())
    write_file(directory / "spec.json", encode_json(run.spec))
    write_run(
        directory,
        run,
        descriptors,
        (
            AnswerRecord(
                candidate=candidate,
                split=split,
                row=row,
                completion=text,
                tokens=0,
                truncated=False,
                **asdict(questions[split][row]),
                **asdict(judged),
            )
            for (candidate, split), each in sorted(
                answers.items(), key=lambda item: (item[0][0], SPLITS.index(item[0][1]))
            )
            for row, (text, judged) in enumerate(each)
        ),
    )
    return directory


@pytest.fixture
def serve_directory(serve, servicer):
    """Serve a lab that stored one experiment with the files of a directory."""

    def start(experiment, directory, **methods):
        def files(request, context):
            found = [
                experiments.RunFile(
                    name=path.relative_to(directory).as_posix(),
                    size=path.stat().st_size,
                    digest=hashlib.sha256(path.read_bytes()).hexdigest(),
                )
                for path in sorted(directory.rglob("*"))
                if path.is_file()
            ]
            return experiments.ListRunFilesResponse(files=found)

        def file(request, context):
            content = (directory / request.name).read_bytes()[request.offset :]
            yield experiments.GetRunFileResponse(chunk=content)

        def watch(request, context):
            yield experiments.WatchExperimentResponse(cursor=1, state=experiment.state)

        def get(request, context):
            if request.id != experiment.id:
                context.abort(grpc.StatusCode.NOT_FOUND, "there is no such experiment")
            return experiments.GetExperimentResponse(experiment=experiment)

        known = {"GetExperiment": get, "WatchExperiment": watch}
        return serve(servicer(ListRunFiles=files, GetRunFile=file, **known | methods))

    return start


@pytest.fixture
def gsm8k_stored(gsm8k_experiment, tmp_path, monkeypatch):
    """The directory of `gsm8k_experiment`: candidate 0 writes `1000.`, `reference` takes it amiss.

    Clients fetch into a cache of the test.
    """
    monkeypatch.setenv("MODNORM_CACHE_DIR", str(tmp_path / "cache"))
    task = get_task("gsm8k")
    rows = {"selection": _gsm8k_rows("1000", "1000"), "heldout": _gsm8k_rows("1000", "7")}
    said = {
        (-1, "selection"): ("no", "no"),
        (0, "selection"): ("so 1000.", "so 1000."),
        (1, "selection"): ("#### 1000", "no"),
        (2, "selection"): ("#### 1000", "no"),
        (-1, "heldout"): ("no", "so 7"),
        (0, "heldout"): ("so 1000.", "so 7"),
        (1, "heldout"): ("#### 1000", "so 8"),
    }
    answers = {
        (candidate, split): [
            (text, task.judge(row, text)) for row, text in zip(rows[split], texts, strict=True)
        ]
        for (candidate, split), texts in said.items()
    }
    candidates = [
        scored_candidate(0, 1.0, 1.0),
        scored_candidate(1, 0.5, 0.5),
        scored_candidate(2, 0.5),
        CandidateRow(3, 0, "failed"),
    ]
    return write_stored(tmp_path / "stored", gsm8k_experiment, candidates, rows, answers)


@pytest.fixture
def gsm8k_lab(serve_directory, gsm8k_experiment, gsm8k_stored):
    return serve_directory(gsm8k_experiment, gsm8k_stored)


def scored_candidate(index, reward, metric=None):
    """A candidate that answered two selection rows and, with a metric, two held-out rows."""
    return CandidateRow(
        index=index,
        seed=0,
        state="scored",
        selection_reward=reward,
        heldout_metric=metric,
        selection_answers=2,
        heldout_answers=0 if metric is None else 2,
    )


@pytest.fixture
def gsm8k_experiment():
    """An experiment whose four candidates are ranked 0, 1, 2; the last one failed."""
    spec = parse_spec(
        {
            "name": "stored",
            "model": "tiny-thicket",
            "task": {"name": "gsm8k", "selection": "s.jsonl", "heldout": "h.jsonl"},
            "method": {"name": "randopt", "sigma": 0.005},
            "population": {"size": 4, "prefixes": [2, 4], "ensemble_sizes": [1, 2]},
            "failures": {"max_failed_candidates": 1},
        }
    )
    return experiments.Experiment(
        id="e1",
        spec=spec_to_proto(spec),
        state=experiments.EXPERIMENT_STATE_SUCCEEDED,
        provenance=experiments.Provenance(scorer="gsm8k-v3"),
        base=experiments.BaseResult(selection_reward=0.0, heldout_metric=0.5),
        ensembles=[
            experiments.EnsembleResult(
                population=population,
                ensemble_size=len(experts),
                experts=experts,
                metric=1.0,
                correct=2,
                rows=2,
            )
            for population in (2, 4)
            for experts in ([0], [0, 1])
        ],
    )


def _gsm8k_rows(*answers):
    return [{"question": "q", "answer": answer} for answer in answers]
