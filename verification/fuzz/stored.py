"""The contents of a lab: stored before the fuzzing and compared afterwards."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from google.protobuf.message import Message
from sqlalchemy import create_engine, text

from modnorm.client.client import Client
from modnorm.client.connection import get_experiment
from modnorm.services.aggregator.storage import tables
from modnorm.spec import ExperimentSpec, parse_spec
from modnorm.v1 import evaluation_pb2, experiment_pb2, sampling_pb2
from modnorm.wire.channel import open_channel
from modnorm.wire.conversions import spec_to_proto
from modnorm.wire.tokens import Role
from verification.labs.bundled_tasks import bundled_task
from verification.labs.secured_lab import SecuredLab, claimed, report_of, reported
from verification.labs.waiting import wait_until

Contents = Mapping[str, Sequence[str]]
_JOBS = "SELECT id FROM jobs WHERE experiment_id = :id ORDER BY candidate"
_REPORTED = "SELECT id FROM jobs WHERE state = 'DONE' AND token > 0"
"""A job that ends with another's answers was never leased, so its token is 0."""
_SUCCEEDED = "SELECT id FROM experiments WHERE id = :id AND state = 'SUCCEEDED'"


def small_spec(**sections: object) -> ExperimentSpec:
    """Return a spec of a short experiment; arguments replace sections."""
    content = {
        "model": "tiny-thicket",
        "task": bundled_task("gsm8k", selection=3, heldout=3, max_tokens=8),
        "method": {"name": "randopt", "sigma": 0.01},
        "population": {"size": 3, "ensemble_sizes": [1]},
    }
    return parse_spec({**content, **sections})


@dataclass(frozen=True)
class Stored:
    """What a lab stores before it is fuzzed: a cancelled, a running and a finished experiment."""

    words: Sequence[str]
    """Ids and digests of all of them."""
    valid: Mapping[str, Sequence[bytes]]
    """Valid requests by path."""


def store(lab: SecuredLab) -> Stored:
    owner = lab.token("fuzz-owner", [Role.SUBMIT, Role.READ])
    with Client(lab.targets["aggregator"], credentials=owner) as client:
        ended = client.submit(small_spec())
        await_jobs(lab, ended.id)
        client.cancel(ended.id)
        live = client.submit(small_spec(name="live"))
        jobs = await_jobs(lab, live.id)
        origin = get_experiment(client, live.id).provenance
        finished = client.submit(small_spec(name="finished")).id
    shown = lab.token("fuzz-leases", [Role.WORKER])
    with open_channel(lab.targets["aggregator"], shown, ()) as channel:
        job = claimed(channel, "", unfit=[finished])
        assert job is not None
        report = report_of(channel, job)

        def is_finished() -> bool:
            """Answer all jobs as a worker would, and look whether that was the end."""
            while (job := claimed(channel, "", unfit=[live.id])) is not None:
                reported(channel, report_of(channel, job, right=True))
            return bool(_find_ids(lab, _SUCCEEDED, finished))

        wait_until(is_finished, f"the end of {finished}")
    valid = {
        path: [message.SerializeToString() for message in messages]
        for path, messages in _valid(live.id, finished, job, report).items()
    }
    words = (
        *(ended.id, live.id, finished, *jobs),
        *(origin.scale_map_digest, origin.selection_digest),
    )
    return Stored(words, valid)


def await_jobs(lab: SecuredLab, experiment_id: str) -> Sequence[str]:
    """Wait until an experiment has jobs; return their ids."""
    wait_until(partial(_find_ids, lab, _JOBS, experiment_id), f"jobs of {experiment_id}")
    return _find_ids(lab, _JOBS, experiment_id)


def _find_ids(lab: SecuredLab, query: str, experiment_id: str) -> Sequence[str]:
    engine = create_engine(lab.database_url)
    with engine.connect() as connection:
        found = [str(row[0]) for row in connection.execute(text(query), {"id": experiment_id})]
    engine.dispose()
    return found


def contents(lab: SecuredLab) -> Contents:
    """Return the contents of the lab's database by table, and the ids of reported jobs."""
    engine = create_engine(lab.database_url)
    with engine.connect() as connection:
        content = {
            table.name: sorted(map(repr, connection.execute(table.select())))
            for table in tables.Experiment.metadata.sorted_tables
        }
        content["reports"] = sorted(map(repr, connection.execute(text(_REPORTED))))
    engine.dispose()
    return content


def unasked(before: Contents, after: Contents, accepted: Mapping[str, int]) -> Iterator[str]:
    """Yield changes of the database that no accepted request explains."""
    created = len(after["experiments"]) - len(before["experiments"])
    if created > accepted.get("CreateExperiment", 0):
        yield f"{created} experiments were created"
    answered = len(after["reports"]) - len(before["reports"])
    if answered > accepted.get("ReportJob", 0):
        yield f"{answered} reports were stored"
    changing = (
        "CreateExperiment",
        "CancelExperiment",
        "ClaimJob",
        "Heartbeat",
        "ReportJob",
        "FailJob",
    )
    if not any(accepted.get(name) for name in changing):
        for name in before:
            if before[name] != after[name]:
                yield f"the table {name} has changed"


def _valid(
    experiment_id: str,
    finished: str,
    job: evaluation_pb2.Job,
    report: evaluation_pb2.ReportJobRequest,
) -> Mapping[str, Sequence[Message]]:
    created = spec_to_proto(small_spec(method={"name": "modular_norm", "radius": 0.3}))
    questions = experiment_pb2.Questions(of=finished, rows=[json.dumps({"question": "How many?"})])
    requests = {
        "ExperimentService": (
            experiment_pb2.CreateExperimentRequest(request_id="fuzz", spec=created),
            experiment_pb2.CreateExperimentRequest(request_id="asked", questions=questions),
            experiment_pb2.GetExperimentRequest(id=experiment_id),
            experiment_pb2.ListRunFilesRequest(experiment_id=experiment_id),
            experiment_pb2.GetRunFileRequest(experiment_id=experiment_id, name="results.json"),
        ),
        "JobService": (
            report,
            evaluation_pb2.ClaimJobRequest(worker="fuzz", unfit_experiments=[experiment_id]),
            evaluation_pb2.HeartbeatRequest(
                leases=[evaluation_pb2.LeaseProgress(lease=job.lease, answers_done=1)] * 2
            ),
            evaluation_pb2.FailJobRequest(
                lease=job.lease, kind=evaluation_pb2.FAILURE_KIND_RELEASED, reason="fuzz"
            ),
            evaluation_pb2.FetchArtifactRequest(digest=job.rows_digest),
        ),
        "SamplingService": (sampling_pb2.InspectModelRequest(model=job.model),),
    }
    found = defaultdict[str, list[Message]](list)
    for service, messages in requests.items():
        for message in messages:
            name = message.DESCRIPTOR.name.removesuffix("Request")
            found[f"/modnorm.v1.{service}/{name}"].append(message)
    return found
