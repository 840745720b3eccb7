"""Requests that share one transaction and are answered separately."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlmodel import Session

from modnorm.errors import UnavailableError
from modnorm.services.aggregator.storage.database import Database

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")
Work = Callable[[Session, Sequence[RequestT]], Sequence[AnswerT | Exception]]

_OUTAGES = 2
"""Consecutive requests without an answer of the database, after which the others are not tried."""


def run_in_one_transaction(
    database: Database, work: Work[RequestT, AnswerT], requests: Sequence[RequestT]
) -> Sequence[AnswerT | Exception]:
    """Process requests in one transaction; if it fails, each in a separate transaction.

    So a request that the database refuses fails alone, and every answer is committed.

    Returns:
        The answer or the error of each request.
    """
    try:
        with database.write() as session:
            return work(session, requests)
    except Exception as error:  # noqa: BLE001 - every error is the answer to one request
        if len(requests) == 1:
            return [error]
    answers: list[AnswerT | Exception] = []
    outages = 0
    for request in requests:
        if outages < _OUTAGES:
            answers.extend(run_in_one_transaction(database, work, [request]))
            outages = outages + 1 if isinstance(answers[-1], UnavailableError) else 0
        else:
            answers.append(UnavailableError("the database did not answer", remedy="try again"))
    return answers
