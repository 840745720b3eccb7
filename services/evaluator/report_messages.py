"""The messages of a report."""

from collections.abc import Iterable, Iterator, Mapping

from modnorm.search.scoring import CandidateResult
from modnorm.services.common.worker.software import SOFTWARE
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.conversions import answer_to_proto, descriptor_to_proto

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
        environment={**SOFTWARE, **environment} if environment else {},
        switch_seconds=result.switch_seconds,
        generate_seconds=result.generate_seconds,
        score_seconds=result.score_seconds,
        stopped=result.stopped is not None,
        normaliser=normaliser,
    )
    yield messages.ReportJobRequest(header=header)
    for batch in _batches(map(answer_to_proto, result.answers)):
        yield messages.ReportJobRequest(answers=batch)


def _batches(answers: Iterable[messages.Answer]) -> Iterator[messages.AnswerBatch]:
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
