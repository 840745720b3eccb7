"""Gives an engine that drafts the answers of other workers to the same rows.

A worker that joins late, or whose engine was loaded again, then drafts well from its first job.
"""

import logging
from collections.abc import Sequence

from modnorm.engines.protocol import LearnsAnswers
from modnorm.errors import ModnormError
from modnorm.services.common.bounded_dict import BoundedDict
from modnorm.services.evaluator.aggregator_client import AggregatorClient
from modnorm.v1 import evaluation_pb2 as messages

ENOUGH = 8
"""Candidates' answers to the same rows after which an engine gets no more of other workers."""
KEPT = 16
"""Sets of rows whose answers are counted."""

logger = logging.getLogger(__name__)


class DraftSources:
    """The answers that one engine knows, by the rows that they answer."""

    def __init__(self, client: AggregatorClient, engine: object) -> None:
        self._client = client
        self._engine = engine
        self._known: BoundedDict[str, set[str]] = BoundedDict(KEPT)

    def learn(self, job: messages.Job, prompts: Sequence[Sequence[int]]) -> None:
        """Give the engine the answers that a job names, each once, up to `ENOUGH`.

        Answers that cannot be fetched cost time only, so the job goes on without them.
        """
        if not job.answer_sheets or not isinstance(self._engine, LearnsAnswers):
            return
        known = self._of(job)
        best = [sheet for sheet in job.answer_sheets if sheet not in known][: ENOUGH - len(known)]
        # The best comes last: an engine drafts from the latest answer first.
        for sheet in reversed(best):
            known.add(sheet)
            try:
                answers = self._client.answer_sheet(sheet)
            except ModnormError as error:
                logger.warning("no drafts from job %s: %s", sheet, error)
                return
            self._engine.learn_answers(
                [prompts[answer.row] for answer in answers],
                [(answer.completion, not answer.truncated) for answer in answers],
            )

    def answered(self, job: messages.Job) -> None:
        """Record that the engine itself has answered a job."""
        known = self._of(job)
        if len(known) < ENOUGH:
            known.add(job.lease.job_id)

    def _of(self, job: messages.Job) -> set[str]:
        known = self._known.get(job.rows_digest, set())
        self._known[job.rows_digest] = known
        return known
