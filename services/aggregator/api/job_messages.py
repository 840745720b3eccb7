"""Conversion of claimed jobs to protobuf messages."""

from functools import lru_cache

from modnorm.services.aggregator.jobs.leases import Claim
from modnorm.services.aggregator.storage.tables import Experiment, Split, parsed_spec
from modnorm.v1 import common_pb2, evaluation_pb2
from modnorm.wire.conversions import descriptor_to_proto, section_to_proto, to_message

_SPLITS = {
    Split.SELECTION: evaluation_pb2.SPLIT_SELECTION,
    Split.HELDOUT: evaluation_pb2.SPLIT_HELDOUT,
    Split.DEVELOPMENT: evaluation_pb2.SPLIT_DEVELOPMENT,
    Split.QUESTIONS: evaluation_pb2.SPLIT_QUESTIONS,
}


def fill_model(message: evaluation_pb2.Job, experiment: Experiment) -> None:
    """Fill in the fields that all jobs of an experiment share: model, engine and task."""
    message.MergeFrom(_specified(experiment.spec_json))
    message.model_digest = experiment.model_digest


def fill_job(message: evaluation_pb2.Job, claim: Claim, lease_seconds: float) -> None:
    """Fill in a leased job with all data that a worker needs."""
    job, experiment = claim.job, claim.experiment
    fill_model(message, experiment)
    lease = message.lease
    lease.job_id, lease.token, lease.seconds = job.id, job.token, lease_seconds
    message.experiment_id = experiment.id
    message.scorer = experiment.scorer
    message.max_tokens = experiment.max_tokens
    message.descriptor.CopyFrom(descriptor_to_proto(claim.candidate.descriptor))
    message.split = _SPLITS[job.split]
    message.rows_digest = experiment.rows_of(job.split)[0]
    if claim.candidate.needs_proposal:
        message.generator_digest = experiment.generator_digest
    message.candidate = job.candidate
    if claim.threshold is not None:
        message.threshold.CopyFrom(to_message(evaluation_pb2.Threshold, claim.threshold))
    message.skipped_rows.extend(claim.skipped)
    message.replay_digest = experiment.selection_digest


@lru_cache(maxsize=64)
def _specified(spec_json: str) -> evaluation_pb2.Job:
    """Return the fields that all jobs of a spec share. The message is cached; do not change it."""
    spec = parsed_spec(spec_json)
    return evaluation_pb2.Job(
        model=section_to_proto(spec.model, common_pb2.ModelRef),
        task=spec.task.name,
        declaration=spec.task.declaration,
        engine=section_to_proto(spec.engine, common_pb2.EngineSpec),
    )
