"""The kind of a failed attempt, by its error."""

from modnorm.errors import (
    CandidateError,
    IncompatibleError,
    InvalidInputError,
    NotFoundError,
    TooLargeError,
)
from modnorm.v1 import evaluation_pb2 as messages


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
