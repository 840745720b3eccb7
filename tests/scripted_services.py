"""A real gRPC server on loopback whose service does what a test tells it."""

import socket
from concurrent import futures
from contextlib import ExitStack, contextmanager
from dataclasses import asdict

import grpc
import pytest

from modnorm import Client
from modnorm.client.connection import _CHANNEL_OPTIONS, Connection
from modnorm.search.voting import Ballot, count_votes
from modnorm.spec import parse_spec
from modnorm.tasks import get_task
from modnorm.tasks.columns import encode_rows
from modnorm.v1 import evaluation_pb2 as evaluation
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.v1.experiment_pb2_grpc import (
    ExperimentServiceServicer,
    add_ExperimentServiceServicer_to_server,
)
from modnorm.v1.prediction_pb2_grpc import (
    PredictionServiceServicer,
    add_PredictionServiceServicer_to_server,
)
from modnorm.wire.conversions import spec_to_proto


@contextmanager
def _running(servicer, address):
    server = grpc.server(futures.ThreadPoolExecutor(4))
    add_ExperimentServiceServicer_to_server(servicer, server)
    add_PredictionServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port(address)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@pytest.fixture
def servicer():
    """Make a servicer whose methods are functions of request and context; others are missing."""

    def make(**methods):
        members = {name: staticmethod(method) for name, method in methods.items()}
        services = (ExperimentServiceServicer, PredictionServiceServicer)
        return type("Service", services, members)()

    return make


@pytest.fixture
def serve():
    """Start a server of a servicer; returns its target."""
    with ExitStack() as stack:

        def start(servicer, address="127.0.0.1:0"):
            return stack.enter_context(_running(servicer, address))

        yield start


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
def free_address():
    """An address on which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    return f"127.0.0.1:{port}"


@pytest.fixture
def serve_stored(serve, servicer):
    """Serve a lab that stored one experiment.

    `answers` are completions and their judgements by candidate and split, `rows` by split.
    """

    def start(experiment, candidates, rows, answers):
        def list_answers(request, context):
            found = answers[request.candidate, request.split]
            messages = [
                evaluation.Answer(row=row, completion=text, **asdict(judgement))
                for row, (text, judgement) in enumerate(found)
            ]
            return experiments.ListAnswersResponse(answers=messages)

        def artifact(request, context):
            text = "\n".join(encode_rows(rows[_SPLIT_OF[request.kind]]))
            yield experiments.GetArtifactResponse(chunk=text.encode())

        def list_votes(request, context):
            size = (request.population, request.ensemble_size)
            experts = next(
                each.experts
                for each in experiment.ensembles
                if (each.population, each.ensemble_size) == size
            )
            said = [answers[expert, evaluation.SPLIT_HELDOUT] for expert in experts]
            ballots = [Ballot.from_answers(judged for _, judged in each) for each in said]
            votes = [
                experiments.Vote(row=row, **asdict(outcome))
                for row, outcome in enumerate(count_votes(ballots))
            ]
            return experiments.ListVotesResponse(votes=votes)

        def watch(request, context):
            yield experiments.WatchExperimentResponse(cursor=1, state=experiment.state)

        def get(request, context):
            if request.id != experiment.id:
                context.abort(grpc.StatusCode.NOT_FOUND, "there is no such experiment")
            return experiments.GetExperimentResponse(experiment=experiment)

        return serve(
            servicer(
                GetExperiment=get,
                ListCandidates=lambda *_: experiments.ListCandidatesResponse(
                    candidates=candidates
                ),
                ListAnswers=list_answers,
                ListVotes=list_votes,
                WatchExperiment=watch,
                GetArtifact=artifact,
            )
        )

    return start


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


@pytest.fixture
def gsm8k_lab(serve_stored, gsm8k_experiment):
    """Serve `gsm8k_experiment`: candidate 0 writes `1000.`, which `reference` takes amiss."""
    task = get_task("gsm8k")
    rows = {
        evaluation.SPLIT_SELECTION: _gsm8k_rows("1000", "1000"),
        evaluation.SPLIT_HELDOUT: _gsm8k_rows("1000", "7"),
    }
    said = {
        (-1, evaluation.SPLIT_SELECTION): ("no", "no"),
        (0, evaluation.SPLIT_SELECTION): ("so 1000.", "so 1000."),
        (1, evaluation.SPLIT_SELECTION): ("#### 1000", "no"),
        (2, evaluation.SPLIT_SELECTION): ("#### 1000", "no"),
        (-1, evaluation.SPLIT_HELDOUT): ("no", "so 7"),
        (0, evaluation.SPLIT_HELDOUT): ("so 1000.", "so 7"),
        (1, evaluation.SPLIT_HELDOUT): ("#### 1000", "so 8"),
    }
    answers = {
        (candidate, split): [
            (text, task.judge(row, text)) for row, text in zip(rows[split], texts, strict=True)
        ]
        for (candidate, split), texts in said.items()
    }
    candidates = [
        scored_candidate(-1, 0.0, 0.5),
        scored_candidate(0, 1.0, 1.0),
        scored_candidate(1, 0.5, 0.5),
        scored_candidate(2, 0.5),
        experiments.Candidate(index=3, state=experiments.CANDIDATE_STATE_FAILED),
    ]
    return serve_stored(gsm8k_experiment, candidates, rows, answers)


def scored_candidate(index, reward, metric=None):
    """A candidate that answered two selection rows and, with a metric, two held-out rows."""
    return experiments.Candidate(
        index=index,
        state=experiments.CANDIDATE_STATE_SCORED,
        selection_reward=reward,
        heldout_metric=metric,
        selection_answers=2,
        heldout_answers=0 if metric is None else 2,
    )


_SPLIT_OF = {
    experiments.ARTIFACT_KIND_SELECTION_ROWS: evaluation.SPLIT_SELECTION,
    experiments.ARTIFACT_KIND_HELDOUT_ROWS: evaluation.SPLIT_HELDOUT,
}


def _gsm8k_rows(*answers):
    return [{"question": "q", "answer": answer} for answer in answers]
