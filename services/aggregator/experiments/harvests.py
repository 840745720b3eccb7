"""The dataset of a finished harvest."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlmodel import Session, select

from modnorm.analysis.answers import BASE_INDEX
from modnorm.distillation.dataset import encode_examples, merged_lines
from modnorm.distillation.examples import HarvestedAnswer, choose_examples, rows_of
from modnorm.search.voting import count_votes
from modnorm.services.aggregator.experiments.expert_selection import (
    ballots_of,
    harvest_experts,
    sheets_of,
)
from modnorm.services.aggregator.storage.states import ArtifactKind, Split
from modnorm.services.aggregator.storage.stored_artifacts import load_rows, load_text
from modnorm.services.aggregator.storage.tables import Experiment, Job, Round
from modnorm.v1 import experiment_pb2


@dataclass(frozen=True, slots=True)
class Harvest:
    """The dataset of a round and its counts."""

    text: str
    """JSON lines; empty if no answer is an example."""
    counts: experiment_pb2.HarvestResult


@dataclass(frozen=True, slots=True)
class _Experts:
    """The experts of a harvest, best first, and the number of answers of each to a row."""

    candidates: tuple[int, ...]
    samples: int

    def of(self, index: int) -> tuple[int, int, int]:
        """Return candidate, rank from 1 and sample of a candidate of the harvest."""
        rank, sample = divmod(index, self.samples)
        return self.candidates[rank], rank + 1, sample


def make_dataset(session: Session, parent: Experiment, part: Round, earlier: str) -> Harvest:
    """Return the dataset of a round whose harvest has ended.

    It reads training rows and the answers to them only.

    Args:
        session: A transaction that may only read.
        parent: The distillation.
        part: The round.
        earlier: Digest of the dataset to add to; empty for none.
    """
    settings = parent.distillation.harvest
    harvest = session.get_one(Experiment, part.harvest_id)
    search = session.get_one(Experiment, part.search_id)
    experts = _Experts(harvest_experts(session, parent, search), settings.samples)
    # In the order of the experts' ranks, as votes and examples need them.
    ballots = [ballot for _, ballot in ballots_of(session, harvest, Split.HARVEST)]
    votes = [vote.answer for vote in count_votes(ballots)]
    ballots.clear()
    examples = choose_examples(
        _answers(session, harvest, experts),
        votes,
        round_number=part.index,
        keep=settings.keep,
        rows=_wrong_rows(session, harvest) if settings.only_wrong else None,
    )
    rows, task = load_rows(session, harvest.heldout_digest), harvest.task()
    lines = encode_examples(examples, lambda row: task.messages(rows[row]))
    before = load_text(session, ArtifactKind.DATASET, earlier).split("\n") if earlier else []
    whole = merged_lines(before, lines)
    counts = _counts(session, harvest)
    counts.rows, counts.examples = len(rows_of(examples)), len(examples)
    counts.dataset_examples = len(whole)
    return Harvest("\n".join(whole), counts)


def _answers(
    session: Session, harvest: Experiment, experts: _Experts
) -> Iterator[HarvestedAnswer]:
    for index, answers in sheets_of(session, harvest, Split.HARVEST):
        candidate, rank, sample = experts.of(index)
        for answer in answers:
            yield HarvestedAnswer(
                row=answer.row,
                completion=answer.completion,
                vote=answer.vote,
                correct=answer.correct,
                tokens=answer.tokens,
                truncated=answer.truncated,
                candidate=candidate,
                rank=rank,
                sample=sample,
            )


def _wrong_rows(session: Session, harvest: Experiment) -> frozenset[int]:
    """Return the rows whose greedy answer by the searched model is wrong."""
    sheets = sheets_of(session, harvest, Split.HARVEST, base=True)
    return frozenset(answer.row for _, sheet in sheets for answer in sheet if not answer.correct)


def _counts(session: Session, harvest: Experiment) -> experiment_pb2.HarvestResult:
    jobs = session.exec(select(Job).where(Job.experiment_id == harvest.id)).all()
    experts = [job for job in jobs if job.candidate != BASE_INDEX]
    return experiment_pb2.HarvestResult(
        answers=sum(job.answers_done for job in experts),
        right=sum(job.correct for job in experts),
        tokens=sum(job.tokens for job in jobs),
    )
