import pytest

from modnorm import errors
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.scoring import CandidateResult
from modnorm.search.voting import Answer
from modnorm.services.common.worker.failures import failure_kind
from modnorm.services.evaluator.report_messages import BATCH_BYTES, report_parts
from modnorm.v1 import evaluation_pb2 as messages

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


INFRASTRUCTURE = messages.FAILURE_KIND_INFRASTRUCTURE
CANDIDATE = messages.FAILURE_KIND_CANDIDATE
FATAL = messages.FAILURE_KIND_FATAL
KINDS = {
    errors.ModnormError: (INFRASTRUCTURE, INFRASTRUCTURE),
    errors.InvalidInputError: (FATAL, INFRASTRUCTURE),
    errors.TooLargeError: (FATAL, CANDIDATE),
    errors.NotFoundError: (FATAL, INFRASTRUCTURE),
    errors.ConflictError: (INFRASTRUCTURE, INFRASTRUCTURE),
    errors.UnauthenticatedError: (INFRASTRUCTURE, INFRASTRUCTURE),
    errors.ForbiddenError: (INFRASTRUCTURE, INFRASTRUCTURE),
    errors.PreconditionError: (INFRASTRUCTURE, INFRASTRUCTURE),
    errors.StaleLeaseError: (INFRASTRUCTURE, INFRASTRUCTURE),
    errors.UnavailableError: (INFRASTRUCTURE, INFRASTRUCTURE),
    errors.UnreachableError: (INFRASTRUCTURE, INFRASTRUCTURE),
    errors.CancelledError: (INFRASTRUCTURE, INFRASTRUCTURE),
    errors.EvaluationError: (INFRASTRUCTURE, INFRASTRUCTURE),
    errors.EngineError: (INFRASTRUCTURE, INFRASTRUCTURE),
    errors.CandidateError: (CANDIDATE, CANDIDATE),
    errors.IncompatibleError: (FATAL, FATAL),
    errors.DoesNotFitError: (FATAL, FATAL),
    KeyError: (INFRASTRUCTURE, INFRASTRUCTURE),
    MemoryError: (INFRASTRUCTURE, INFRASTRUCTURE),
}
"""Failure kinds of an error at the engine, and while judging and reporting."""


@pytest.mark.parametrize(("error", "kinds"), KINDS.items())
def test_errors_have_a_failure_kind(error, kinds) -> None:
    found = tuple(failure_kind(error("x"), at_engine=at_engine) for at_engine in (True, False))
    assert found == kinds


def test_every_error_of_the_tree_has_a_meaning() -> None:
    tree = {one for one in vars(errors).values() if isinstance(one, type)}
    assert tree == {one for one in KINDS if issubclass(one, errors.ModnormError)}
