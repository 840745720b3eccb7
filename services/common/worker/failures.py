"""Failed attempts: their kind and reason by the error, and their report."""

import logging

from modnorm.errors import (
    CandidateError,
    IncompatibleError,
    InvalidInputError,
    ModnormError,
    NotFoundError,
    TooLargeError,
)
from modnorm.services.common.worker.aggregator_calls import AggregatorCalls
from modnorm.v1 import evaluation_pb2 as messages

logger = logging.getLogger(__name__)


def failure_kind(error: Exception, *, at_engine: bool) -> messages.FailureKind.ValueType:
    """Return the kind of a failed attempt, which decides whether the job is tried again.

    An invalid job fails in every attempt, as do all jobs of its experiment: `FATAL`. A refused
    report may succeed from another worker. Any other failure is of the worker, its machine or a
    service, and the job is tried again: `INFRASTRUCTURE`.

    `at_engine` is False while the result is scored and reported.
    """
    if isinstance(error, CandidateError) or (isinstance(error, TooLargeError) and not at_engine):
        return messages.FAILURE_KIND_CANDIDATE
    if isinstance(error, IncompatibleError):
        return messages.FAILURE_KIND_FATAL
    if isinstance(error, InvalidInputError | NotFoundError) and at_engine:
        return messages.FAILURE_KIND_FATAL
    return messages.FAILURE_KIND_INFRASTRUCTURE


def report_error(
    client: AggregatorCalls, lease: messages.Lease, error: Exception, *, at_engine: bool = True
) -> messages.FailureKind.ValueType:
    """Report that an error ended an attempt; return the kind of the failure."""
    kind = failure_kind(error, at_engine=at_engine)
    known = error if isinstance(error, ModnormError) else None
    reason = f"{type(error).__name__}: {known.reason if known else error}"
    report_failure(client, lease, kind, reason, (known and known.remedy) or "")
    return kind


def report_failure(  # noqa: PLR0913 - the failure and its job
    client: AggregatorCalls,
    lease: messages.Lease,
    kind: messages.FailureKind.ValueType,
    reason: str,
    remedy: str = "",
    *,
    unfit: bool = False,
) -> None:
    """Report that an attempt failed; if that is impossible, log it: the lease expires."""
    try:
        client.fail(lease, kind, reason, remedy, unfit=unfit)
    except ModnormError as error:
        logger.warning("failure not reported: %s", error)
