"""The calls of a lab, each described once.

A call that returns one page of a list takes the token of the page as its last argument.
"""

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from google.protobuf.message import Message

from modnorm.arguments import require_text
from modnorm.client.radius import carry_radius
from modnorm.client.settings import ClientSettings
from modnorm.spec import ExperimentSpec, load_spec
from modnorm.tasks.declared_task import carry_declaration
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_to_proto
from modnorm.wire.status import LATE

SERVICE = experiments.DESCRIPTOR.services_by_name["ExperimentService"].full_name
_SUBMIT_SECONDS = 2_400.0
"""A submission downloads and hashes a model that the lab has not seen yet, for which the lab
itself allows half an hour; data and an answer come on top."""
_DOWNLOAD_SECONDS = 3_600.0
_PAGE = 500

ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")
Page = tuple[Iterable[ItemT], str]
"""Items, and the token of the next page; it is empty on the last one."""


@dataclass(frozen=True, slots=True)
class Call(Generic[ResultT]):
    """A call, and how its response is read."""

    method: str
    request: Message
    read: Callable[[bytes], ResultT]
    """Returns the result from a response, or from each response of a stream."""
    least_seconds: float = 0.0
    """Least deadline, whatever the client's timeout is."""
    late: str = LATE
    """Remedy where no answer came in time."""

    @property
    def path(self) -> str:
        """Service and method."""
        return f"/{SERVICE}/{self.method}"


def create_experiment(
    spec: ExperimentSpec | Path | str, request_id: str | None = None
) -> Call[experiments.Experiment]:
    """Create an experiment; the same request id gives the same experiment.

    Where the spec names a task file, it is read here and its text goes with the spec; a radius
    that is named by an artifact becomes a number.
    """
    if request_id is not None:
        require_text(request_id, "request_id")
    whole = carry_declaration(spec if isinstance(spec, ExperimentSpec) else load_spec(spec))
    if not whole.method.is_resolved:
        whole = carry_radius(whole, ClientSettings().cache)
    request_id = request_id or str(uuid.uuid4())
    return Call(
        "CreateExperiment",
        experiments.CreateExperimentRequest(request_id=request_id, spec=spec_to_proto(whole)),
        lambda data: experiments.CreateExperimentResponse.FromString(data).experiment,
        least_seconds=_SUBMIT_SECONDS,
        late="the lab may still be at it, downloading the model for instance: submit again with "
        f"the request id {request_id}, which stays one experiment",
    )


def get_experiment(experiment_id: str) -> Call[experiments.Experiment]:
    """Read an experiment with the results it has so far."""
    require_text(experiment_id, "experiment_id")
    return Call(
        "GetExperiment",
        experiments.GetExperimentRequest(id=experiment_id),
        lambda data: experiments.GetExperimentResponse.FromString(data).experiment,
    )


def cancel_experiment(experiment_id: str) -> Call[experiments.Experiment]:
    """Ask an experiment to stop; repeating it changes nothing."""
    require_text(experiment_id, "experiment_id")
    return Call(
        "CancelExperiment",
        experiments.CancelExperimentRequest(id=experiment_id),
        lambda data: experiments.CancelExperimentResponse.FromString(data).experiment,
    )


def watch_experiment(experiment_id: str, cursor: int) -> Call[experiments.WatchExperimentResponse]:
    """Stream the events after a cursor."""
    return Call(
        "WatchExperiment",
        experiments.WatchExperimentRequest(id=experiment_id, cursor=cursor),
        experiments.WatchExperimentResponse.FromString,
    )


def list_experiments(token: str) -> Call[Page[experiments.Experiment]]:
    """Page through all experiments, newest first, without their results."""

    def read(data: bytes) -> Page[experiments.Experiment]:
        page = experiments.ListExperimentsResponse.FromString(data)
        return page.experiments, page.next_page_token

    return Call(
        "ListExperiments",
        experiments.ListExperimentsRequest(page_size=_PAGE, page_token=token),
        read,
    )


def list_run_files(experiment_id: str) -> Call[Sequence[experiments.RunFile]]:
    """List the files of a finished experiment's directory; the lab may write them first."""
    require_text(experiment_id, "experiment_id")
    return Call(
        "ListRunFiles",
        experiments.ListRunFilesRequest(experiment_id=experiment_id),
        lambda data: experiments.ListRunFilesResponse.FromString(data).files,
        least_seconds=_DOWNLOAD_SECONDS,
    )


def get_run_file(experiment_id: str, name: str, offset: int = 0) -> Call[bytes]:
    """Stream the chunks of a file of this directory, from an offset on."""
    return Call(
        "GetRunFile",
        experiments.GetRunFileRequest(experiment_id=experiment_id, name=name, offset=offset),
        lambda data: experiments.GetRunFileResponse.FromString(data).chunk,
        least_seconds=_DOWNLOAD_SECONDS,
    )


def ask_questions(
    questions: experiments.Questions, request_id: str
) -> Call[experiments.Experiment]:
    """Create an experiment that only votes; the same request id gives the same experiment."""
    return Call(
        "CreateExperiment",
        experiments.CreateExperimentRequest(request_id=request_id, questions=questions),
        lambda data: experiments.CreateExperimentResponse.FromString(data).experiment,
    )
