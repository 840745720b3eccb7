import pytest

from modnorm import errors
from modnorm.services.evaluator.aggregator_client import failure_kind
from modnorm.v1 import evaluation_pb2 as messages

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
def test_errors_have_a_failure_kind(error, kinds):
    found = tuple(failure_kind(error("x"), at_engine=at_engine) for at_engine in (True, False))
    assert found == kinds


def test_every_error_of_the_tree_has_a_kind():
    tree = {one for one in vars(errors).values() if isinstance(one, type)}
    assert tree == {one for one in KINDS if issubclass(one, errors.ModnormError)}
