"""Requests that arrive together, worked on in one transaction and each answered for itself."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlmodel import Session

from modnorm.errors import UnavailableError
from services.aggregator.database import Database

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")
Work = Callable[[Session, Sequence[RequestT]], Sequence[AnswerT | Exception]]

_OUTAGES = 2
"""After as many requests in a row that the database did not take, the others are not tried."""


def together(
    database: Database, work: Work[RequestT, AnswerT], requests: Sequence[RequestT]
) -> Sequence[AnswerT | Exception]:
    """Work on requests in one transaction; where that fails, on each in one of its own.

    So a request that the database chokes on fails alone, and what is answered is committed.

    Args:
        database: Where.
        work: Answers requests inside a transaction; what it raises undoes it.
        requests: In the order that they are worked on.

    Returns:
        The answer or the error of each request.
    """
    try:
        with database.write() as session:
            return work(session, requests)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is one request's answer
        if len(requests) == 1:
            return [error]
    answers: list[AnswerT | Exception] = []
    outages = 0
    for request in requests:
        if outages < _OUTAGES:
            answers.extend(together(database, work, [request]))
            outages = outages + 1 if isinstance(answers[-1], UnavailableError) else 0
        else:
            answers.append(UnavailableError("the database did not answer", remedy="try again"))
    return answers


def answer_to(answers: Sequence[AnswerT | Exception]) -> AnswerT:
    """Return the answer to a single request.

    Raises:
        Exception: what went wrong instead.
    """
    (answer,) = answers
    if isinstance(answer, Exception):
        raise answer
    return answer
