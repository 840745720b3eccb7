"""Conversion of the rounds of a distillation to messages."""

from collections.abc import Sequence

from modnorm.services.aggregator.experiments.records import RoundRecord
from modnorm.services.aggregator.storage.states import RoundPhase
from modnorm.v1 import evaluation_pb2, experiment_pb2


def round_results(records: Sequence[RoundRecord]) -> list[experiment_pb2.RoundResult]:
    """Return the results of rounds, in order, with the best by development rows marked."""
    best = best_round(records)
    return [_result(record, is_best=record.part.index == best) for record in records]


def best_round(records: Sequence[RoundRecord]) -> int | None:
    """Return the finished round with the best student on development rows, the first of equals.

    Held-out rows choose nothing.
    """
    done = [
        (record.development.correct, -record.part.index)
        for record in records
        if record.part.index and record.part.phase is RoundPhase.DONE and record.development
    ]
    return -max(done)[1] if done else None


def _result(record: RoundRecord, *, is_best: bool) -> experiment_pb2.RoundResult:
    part, development, heldout = record.part, record.development, record.heldout
    message = experiment_pb2.RoundResult(
        round=part.index,
        phase=experiment_pb2.RoundPhase.Value(f"ROUND_PHASE_{part.phase}"),
        search_id=part.search_id,
        searched_model=part.searched_model,
        dataset_digest=part.dataset_digest,
        student_digest=part.student_digest,
        development_metric=development.metric if development else None,
        heldout_metric=heldout.metric if heldout else None,
        heldout_correct=heldout.correct if heldout else 0,
        development_correct=development.correct if development else 0,
        spent=experiment_pb2.Spent(answers=record.answers, tokens=record.tokens),
        best=is_best,
        harvest_id=part.harvest_id,
        evaluation_id=part.evaluation_id,
    )
    if part.harvest:
        message.harvest.CopyFrom(experiment_pb2.HarvestResult.FromString(part.harvest))
    if part.training:
        message.training.CopyFrom(evaluation_pb2.TrainReport.FromString(part.training))
    return message
