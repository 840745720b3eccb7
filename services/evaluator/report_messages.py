"""The messages of a report, and the kind of a failure."""

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
"""Size of one message of answers: a quarter of gRPC's default limit."""


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
        environment: What the answers may depend on; empty if nothing was answered.
        normaliser: Of the amplitudes that a generator proposed; 0 without a generator.
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
    """Return what a failed attempt says about the candidate and the experiment.

    A wrong job fails in every attempt, and so do all jobs of its experiment. A refused report says
    nothing about the job, as another worker may do better. Any other failure is of the worker, its
    machine or a service, and is worth another attempt.

    Args:
        error: The error that ended the attempt.
        at_engine: Whether rows were being answered, not scored and reported.
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
