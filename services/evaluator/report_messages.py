"""The messages of a report, and the failure kind of an error."""

import platform
from collections.abc import Iterator, Mapping, Sequence

from modnorm.errors import (
    CandidateError,
    IncompatibleError,
    InvalidInputError,
    NotFoundError,
    TooLargeError,
)
from modnorm.search.judging import Answer
from modnorm.search.scoring import CandidateResult
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.conversions import descriptor_to_proto

BATCH_BYTES = 2**20
"""Largest message of answers: a quarter of gRPC's default limit."""


def report_parts(
    lease: messages.Lease,
    worker: str,
    result: CandidateResult,
    environment: Mapping[str, str],
    normaliser: float = 0.0,
) -> Iterator[messages.ReportJobRequest]:
    """Yield a header, then the answers in row order.

    Args:
        lease: The lease of the job.
        worker: Name of the worker.
        result: The result.
        environment: Device, libraries and settings of the answers; empty if there are none.
        normaliser: Normaliser of the amplitudes that a generator proposed; 0 without a generator.
    """
    header = messages.ReportHeader(
        lease=lease,
        descriptor=descriptor_to_proto(result.descriptor),
        worker=worker,
        environment={"python": platform.python_version(), **environment} if environment else {},
        switch_seconds=result.switch_seconds,
        generate_seconds=result.generate_seconds,
        score_seconds=result.score_seconds,
        stopped=result.stopped is not None,
        normaliser=normaliser,
    )
    yield messages.ReportJobRequest(header=header)
    for batch in _batches([_answer(answer) for answer in result.answers]):
        yield messages.ReportJobRequest(answers=batch)


def failure_kind(error: Exception, *, at_engine: bool) -> messages.FailureKind.ValueType:
    """Return the kind of a failed attempt, which decides whether the job is tried again.

    An invalid job fails in every attempt, as do all jobs of its experiment: `FATAL`. A refused
    report may succeed from another worker. Any other failure is of the worker, its machine or a
    service, and the job is tried again: `INFRASTRUCTURE`.

    `at_engine` is False while the job is scored and reported.
    """
    if isinstance(error, CandidateError) or (isinstance(error, TooLargeError) and not at_engine):
        return messages.FAILURE_KIND_CANDIDATE
    if isinstance(error, IncompatibleError):
        return messages.FAILURE_KIND_FATAL
    if isinstance(error, InvalidInputError | NotFoundError) and at_engine:
        return messages.FAILURE_KIND_FATAL
    return messages.FAILURE_KIND_INFRASTRUCTURE


def _batches(answers: Sequence[messages.Answer]) -> Iterator[messages.AnswerBatch]:
    batch = messages.AnswerBatch()
    size = 0
    for answer in answers:
        if batch.answers and size + answer.ByteSize() > BATCH_BYTES:
            yield batch
            batch, size = messages.AnswerBatch(), 0
        batch.answers.append(answer)
        size += answer.ByteSize()
    if batch.answers:
        yield batch


def _answer(answer: Answer) -> messages.Answer:
    return messages.Answer(
        row=answer.row,
        completion=answer.completion,
        reward=answer.reward,
        vote=answer.vote,
        correct=answer.correct,
        tokens=answer.tokens,
        truncated=answer.truncated,
    )
