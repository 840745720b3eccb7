"""The Python client: experiments are submitted, followed and read with a few methods."""

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol, Self, TypeVar

import grpc
from google.protobuf.message import Message

from modnorm.client.radius import carry_radius
from modnorm.client.settings import ClientSettings
from modnorm.client.watch import Watch
from modnorm.errors import RateLimitedError
from modnorm.spec import ExperimentSpec
from modnorm.tasks.declared_task import carry_declaration
from modnorm.v1 import evaluation_pb2 as evaluation
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.v1 import radius_pb2
from modnorm.v1.experiment_pb2_grpc import ExperimentServiceStub
from modnorm.v1.radius_pb2_grpc import RadiusServiceStub
from modnorm.wire.channel import Credentials, open_channel
from modnorm.wire.connection import ConnectionSettings
from modnorm.wire.conversions import spec_to_proto
from modnorm.wire.status import LATE, from_rpc_error

_SERVICE = experiments.DESCRIPTOR.services_by_name["ExperimentService"].full_name
_RETRIES = {
    "methodConfig": [
        {
            # Every method may be repeated: creation carries a request id, the rest read or absorb.
            "name": [{"service": _SERVICE}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.2s",
                "maxBackoff": "3s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}
_CHANNEL_OPTIONS = (
    ("grpc.service_config", json.dumps(_RETRIES)),
    ("grpc.max_receive_message_length", 64 * 2**20),
    # A watch may be silent for minutes; keepalives detect a dead connection.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)
_SUBMIT_SECONDS = 2_400.0
"""A submission downloads and hashes a model that the lab has not seen yet, for which the lab
itself allows half an hour; data and an answer come on top."""
_MATCHING_SECONDS = 24 * 3600.0
_PAGE = 500
_ANSWER_PAGE = 200
"""Completions are long: pages stay below gRPC's default message limit on the server's side."""

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class _Page(Protocol):
    @property
    def next_page_token(self) -> str: ...


PageT = TypeVar("PageT", bound=_Page)


class LabCalls:
    """A connection to an aggregator. Methods raise the errors of `modnorm.errors`.

    Args:
        target: `HOST:PORT` of the aggregator.
        timeout: Seconds that one call may take, retries included.
        patience: Seconds that `watch` retries a server that went away.
        credentials: Token and certificates; those of the environment when absent.
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: float = 30.0,
        patience: float = 120.0,
        credentials: Credentials | None = None,
    ) -> None:
        self._target = target
        self._timeout = timeout
        self._patience = patience
        shown = ConnectionSettings().credentials if credentials is None else credentials
        shown.require_authorities()
        self._channel = open_channel(target, shown, _CHANNEL_OPTIONS)
        self._stub = ExperimentServiceStub(self._channel)
        self._radii = RadiusServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def submit(
        self, spec: ExperimentSpec, request_id: str | None = None
    ) -> experiments.Experiment:
        """Create an experiment; the same request id gives the same experiment.

        Where the spec names a task file, it is read here and its text goes with the spec; a
        radius that is named by an artifact becomes a number.

        Args:
            spec: What to run.
            request_id: Name of the request; a fresh one when absent.

        Raises:
            InvalidInputError: the spec or its task file is not sound; nothing was stored.
            ConflictError: the request id belongs to another spec.
            UnavailableError: the aggregator, or a service that it needs, is down, or did not
                answer in time: submitted again under the same request id, it is one experiment.
        """
        whole = carry_declaration(spec)
        if not whole.method.is_resolved:
            found = ClientSettings()
            whole = carry_radius(whole, found.cache_dir, folders=found.split_folders)
        request_id = request_id or str(uuid.uuid4())
        request = experiments.CreateExperimentRequest(
            request_id=request_id, spec=spec_to_proto(whole)
        )
        seconds = max(self._timeout, _SUBMIT_SECONDS)
        late = (
            "the lab may still be at it, downloading the model for instance: submit again with "
            f"the request id {request_id}, which stays one experiment"
        )
        create = partial(self._stub.CreateExperiment, request, timeout=seconds)
        return self._admitted(create, seconds, late=late).experiment

    def get(self, experiment_id: str) -> experiments.Experiment:
        """Return an experiment with the results it has so far."""
        request = experiments.GetExperimentRequest(id=experiment_id)
        return self._call(self._stub.GetExperiment, request).experiment

    def list(self) -> Iterator[experiments.Experiment]:
        """Yield all experiments, newest first, without their results."""

        def page(token: str) -> experiments.ListExperimentsResponse:
            request = experiments.ListExperimentsRequest(page_size=_PAGE, page_token=token)
            return self._call(self._stub.ListExperiments, request)

        return _pages(page, lambda response: response.experiments)

    def watch(
        self, experiment_id: str, cursor: int = 0
    ) -> Iterator[experiments.WatchExperimentResponse]:
        """Yield events after `cursor` until the experiment ends.

        A lost connection is reopened: no event is missed or repeated.

        Raises:
            UnavailableError: the server could not be reached for `patience` seconds.
        """
        return Watch(self._stub, experiment_id, cursor, self._patience).events()

    def cancel(self, experiment_id: str) -> experiments.Experiment:
        """Ask an experiment to stop; repeating it changes nothing."""
        request = experiments.CancelExperimentRequest(id=experiment_id)
        return self._call(self._stub.CancelExperiment, request).experiment

    def candidates(self, experiment_id: str) -> Iterator[experiments.Candidate]:
        """Yield the candidates in order, the unperturbed base (index -1) first."""

        def page(token: str) -> experiments.ListCandidatesResponse:
            request = experiments.ListCandidatesRequest(
                experiment_id=experiment_id, page_size=_PAGE, page_token=token
            )
            return self._call(self._stub.ListCandidates, request)

        return _pages(page, lambda response: response.candidates)

    def answers(
        self,
        experiment_id: str,
        candidate: int,
        split: "evaluation.Split.ValueType" = evaluation.SPLIT_SELECTION,
    ) -> Iterator[evaluation.Answer]:
        """Yield one candidate's answers in row order.

        Args:
            experiment_id: The experiment.
            candidate: Index of the candidate; -1 is the base.
            split: Which rows.
        """

        def page(token: str) -> experiments.ListAnswersResponse:
            request = experiments.ListAnswersRequest(
                experiment_id=experiment_id,
                candidate=candidate,
                split=split,
                page_size=_ANSWER_PAGE,
                page_token=token,
            )
            return self._call(self._stub.ListAnswers, request)

        return _pages(page, lambda response: response.answers)

    def votes(
        self, experiment_id: str, population: int, ensemble_size: int
    ) -> Iterator[experiments.Vote]:
        """Yield the votes of the ensemble (N, K) in row order."""

        def page(token: str) -> experiments.ListVotesResponse:
            request = experiments.ListVotesRequest(
                experiment_id=experiment_id,
                population=population,
                ensemble_size=ensemble_size,
                page_size=_PAGE,
                page_token=token,
            )
            return self._call(self._stub.ListVotes, request)

        return _pages(page, lambda response: response.votes)

    def artifact(self, experiment_id: str, kind: "experiments.ArtifactKind.ValueType") -> bytes:
        """Return rows, profile or scale map of an experiment, UTF-8."""
        request = experiments.GetArtifactRequest(experiment_id=experiment_id, kind=kind)

        def fetch() -> bytes:
            chunks = self._stub.GetArtifact(request, timeout=self._timeout)
            return b"".join(chunk.chunk for chunk in chunks)

        return self._admitted(fetch, self._timeout)

    def match_radius(
        self, request: radius_pb2.MatchRadiusRequest
    ) -> Iterator[radius_pb2.MatchRadiusResponse]:
        """Yield the progress of a functional matching, then its artifact.

        `modnorm.client.lab_matching.match_in_lab` makes the request and reads the answer.

        Raises:
            InvalidInputError: the spec or the matching is not sound.
            UnavailableError: the aggregator, or a service that it needs, is down; the same
                request resumes this one.
        """
        try:
            yield from self._radii.MatchRadius(request, timeout=_MATCHING_SECONDS)
        except grpc.RpcError as error:
            late = "the lab may still be measuring: the same request resumes it"
            raise from_rpc_error(error, late=late) from error

    def _call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[RequestT, ResponseT]",
        request: RequestT,
    ) -> ResponseT:
        """Make a call; retry it after the pause of a rate limit."""
        seconds = self._timeout
        return self._admitted(lambda: method(request, timeout=seconds), seconds)

    def _admitted(
        self, call: Callable[[], ResultT], seconds: float, *, late: str = LATE
    ) -> ResultT:
        """Make a call; raise at once if the pause of a rate limit would exceed the timeout."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return call()
            except grpc.RpcError as error:
                met = from_rpc_error(error, late=late)
                if not isinstance(met, RateLimitedError):
                    raise met from error
                if time.monotonic() + met.wait > deadline:
                    raise met from error
            time.sleep(met.wait)


def _pages(
    fetch: Callable[[str], PageT], items: Callable[[PageT], Iterable[ItemT]]
) -> Iterator[ItemT]:
    """Walk through all pages, one call at a time."""
    token = ""
    while True:
        page = fetch(token)
        yield from items(page)
        token = page.next_page_token
        if not token:
            return
