"""What reports change, collected to be written in a few statements."""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Self

from sqlmodel import Session

from services.aggregator.bulk import RowStatements, Values, insert, update
from services.aggregator.codec import pack_answers
from services.aggregator.reports import Outcome, Report
from services.aggregator.rows import RESULT, JobRow
from services.aggregator.states import JobState
from services.aggregator.tables import Experiment, Job

_JOBS, _CANDIDATES = Job.metadata.tables["jobs"], Job.metadata.tables["candidates"]
_EXPERIMENTS = Job.metadata.tables["experiments"]
_COUNTED = ("jobs_done", "jobs_failed", "candidates_stopped", "last_cursor")
"""What a result changes of its experiment, as long as the phase goes on."""
_STORE = RowStatements(
    update(_JOBS, ("id",), RESULT, {"state": JobState.DONE, "error": "", "lease_deadline": None}),
    update(_CANDIDATES, ("experiment_id", "index"), ("coefficients", "normaliser"), {}),
    insert(Job.metadata.tables["answers"], ("job_id", "content")),
    insert(
        Job.metadata.tables["events"],
        ("experiment_id", "cursor", "time", "message", "state", "progress"),
    ),
    update(_EXPERIMENTS, ("id",), _COUNTED, {}),
)


@dataclass(frozen=True, slots=True)
class PackedReport:
    """A report whose answers are packed before any lock is taken for it."""

    report: Report
    answers: bytes | None
    """None where they cannot be packed; such a report is refused."""

    @classmethod
    def of(cls, report: Report) -> Self:
        """Pack the answers of a report."""
        try:
            return cls(report, pack_answers(report.answers))
        except ValueError:
            return cls(report, None)


@dataclass(frozen=True, slots=True)
class _Noted:
    """Rows of one experiment, in the order of the statements that write them."""

    results: list[Values] = field(default_factory=list)
    coefficients: list[Values] = field(default_factory=list)
    answers: list[Values] = field(default_factory=list)
    events: list[Values] = field(default_factory=list)
    counts: list[Values] = field(default_factory=list)

    def rows(self) -> tuple[list[Values], ...]:
        """Return them by statement."""
        return self.results, self.coefficients, self.answers, self.events, self.counts


class Writes:
    """Results, events and counts of one transaction that are not written yet.

    Those of an experiment are written together: what the others' reports are checked against is
    what was committed.
    """

    def __init__(self) -> None:
        self._noted: defaultdict[str, _Noted] = defaultdict(_Noted)

    def result(self, job: JobRow, packed: PackedReport, outcome: Outcome) -> None:
        """Note the result of a job that is done."""
        report, noted = packed.report, self._noted[job.experiment_id]
        noted.results.append(
            {
                "id": job.id,
                "attempts": job.attempts,
                "worker": job.worker,
                "metric": outcome.metric,
                "reward_lower": outcome.stopped.lower if outcome.stopped else None,
                "reward_upper": outcome.stopped.upper if outcome.stopped else None,
                "answers_done": len(report.answers),
                "correct": sum(answer.correct for answer in report.answers),
                "tokens": sum(answer.tokens for answer in report.answers),
                "switch_seconds": report.switch_seconds,
                "generate_seconds": report.generate_seconds,
                "score_seconds": report.score_seconds,
                "environment": _environment(tuple(sorted(report.environment.items()))),
            }
        )
        noted.coefficients.append(
            {
                "experiment_id": job.experiment_id,
                "index": job.candidate,
                "coefficients": outcome.coefficients,
                "normaliser": report.normaliser or None,
            }
        )
        content = pack_answers(report.answers) if packed.answers is None else packed.answers
        noted.answers.append({"job_id": job.id, "content": content})

    def event(self, experiment_id: str, event: Values) -> None:
        """Note an event, by its columns."""
        self._noted[experiment_id].events.append(event)

    def counts(self, experiment: Experiment) -> None:
        """Note what an experiment counts at the end of the transaction."""
        counted = {name: getattr(experiment, name) for name in _COUNTED}
        self._noted[experiment.id].counts.append({"id": experiment.id, **counted})

    def flush(self, session: Session, experiment_id: str) -> None:
        """Write what is noted of one experiment."""
        _STORE.execute(session, self._noted.pop(experiment_id).rows())

    def flush_all(self, session: Session) -> None:
        """Write all that is noted."""
        parts = zip(*(noted.rows() for noted in self._noted.values()), strict=True)
        _STORE.execute(session, [list(chain.from_iterable(rows)) for rows in parts])
        self._noted.clear()


@lru_cache(maxsize=256)
def _environment(items: tuple[tuple[str, str], ...]) -> str:
    """Write down an environment, which workers have in common."""
    return json.dumps(dict(items))
