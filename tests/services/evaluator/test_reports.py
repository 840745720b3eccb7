from modnorm.errors import (
    CandidateError,
    EngineError,
    IncompatibleError,
    InvalidInputError,
    UnavailableError,
)
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.scoring import Answer, CandidateResult
from modnorm.v1 import evaluation_pb2 as messages
from services.evaluator.reports import BATCH_BYTES, failure_kind, report_parts

LEASE = messages.Lease(job_id="a", token=3)


def result(completions: list[str]) -> CandidateResult:
    answers = tuple(
        Answer(
            row, text, 0.25, None if row % 2 else "7", correct=row == 1, tokens=4, truncated=False
        )
        for row, text in enumerate(completions)
    )
    descriptor = Descriptor("portable-v1", 1, "randopt", 0.1, "0" * 64, (0.5, 0.25))
    return CandidateResult(descriptor, answers, 0.1, 0.2, 0.3)


def test_long_answers_are_split_in_order() -> None:
    texts = [chr(97 + row) * (BATCH_BYTES // 3) for row in range(9)]
    header, *batches = report_parts(LEASE, "me", result(texts), {"engine": "x"})
    assert header.header.lease == LEASE
    assert list(header.header.descriptor.coefficients) == [0.5, 0.25]
    assert len(batches) > 1
    assert all(batch.ByteSize() < 2 * BATCH_BYTES for batch in batches)
    answers = [answer for batch in batches for answer in batch.answers.answers]
    assert [answer.row for answer in answers] == list(range(9))
    assert [answer.completion for answer in answers] == texts


def test_an_answer_larger_than_a_batch_travels_alone() -> None:
    texts = ["a", "b" * (BATCH_BYTES + 5), "c"]
    _, *batches = report_parts(LEASE, "me", result(texts), {})
    assert [len(batch.answers.answers) for batch in batches] == [1, 1, 1]


def test_no_vote_is_not_an_empty_vote() -> None:
    _, batch = report_parts(LEASE, "me", result(["a", "b"]), {})
    first, second = batch.answers.answers
    assert first.vote == "7"
    assert not second.HasField("vote")


def test_failures_by_whose_fault_they_are() -> None:
    assert failure_kind(CandidateError("nan")) == messages.FAILURE_KIND_CANDIDATE
    assert failure_kind(IncompatibleError("other")) == messages.FAILURE_KIND_FATAL
    for error in (EngineError("x"), UnavailableError("x"), InvalidInputError("x"), KeyError("x")):
        assert failure_kind(error) == messages.FAILURE_KIND_INFRASTRUCTURE
