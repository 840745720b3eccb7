"""Answers of other workers for an engine that drafts."""

from collections.abc import Sequence

import pytest

from modnorm.services.evaluator.aggregator_client import AggregatorClient
from modnorm.services.evaluator.draft_sources import ENOUGH, DraftSources
from modnorm.v1 import evaluation_pb2 as messages
from tests.services.evaluator.conftest import Aggregator

PROMPTS = [[1], [2, 3]]


class Learner:
    """An engine that records what it learns."""

    def __init__(self) -> None:
        self.learned: list[tuple[Sequence[Sequence[int]], Sequence[tuple[str, bool]]]] = []

    def learn_answers(
        self, prompts: Sequence[Sequence[int]], answers: Sequence[tuple[str, bool]]
    ) -> None:
        self.learned.append((prompts, answers))


@pytest.fixture
def learner() -> Learner:
    return Learner()


@pytest.fixture
def sources(client: AggregatorClient, learner: Learner) -> DraftSources:
    return DraftSources(client, learner)


def job(name: str, *sheets: str, rows: str = "r") -> messages.Job:
    lease = messages.Lease(job_id=name)
    return messages.Job(lease=lease, answer_sheets=sheets, rows_digest=rows)


def sheet(text: str) -> list[messages.SheetAnswer]:
    return [
        messages.SheetAnswer(row=1, completion=text),
        messages.SheetAnswer(row=0, completion="cut", truncated=True),
    ]


def test_each_sheet_is_learned_once_and_the_best_last(
    aggregator: Aggregator, sources: DraftSources, learner: Learner
) -> None:
    aggregator.sheets = {"base": sheet("base said"), "good": sheet("good said")}
    sources.learn(job("a", "base", "good"), PROMPTS)
    sources.learn(job("b", "base", "good"), PROMPTS)
    assert [answers[0] for _, answers in learner.learned] == [
        ("good said", True),
        ("base said", True),
    ]
    prompts, answers = learner.learned[0]
    assert (prompts, answers[1]) == ([[2, 3], [1]], ("cut", False))
    assert aggregator.calls["FetchAnswerSheet"] == 2


def test_own_answers_are_not_fetched_and_enough_is_enough(
    aggregator: Aggregator, sources: DraftSources, learner: Learner
) -> None:
    aggregator.sheets = {str(name): sheet("said") for name in range(ENOUGH + 3)}
    sources.answered(job("0"))
    sources.learn(job("x", "0", "1", "2"), PROMPTS)
    assert len(learner.learned) == 2
    for name in range(ENOUGH - 3):
        sources.answered(job(f"own {name}"))
    sources.learn(job("y", *aggregator.sheets), PROMPTS)
    assert len(learner.learned) == 2
    sources.learn(job("z", "3", rows="others"), PROMPTS)
    assert len(learner.learned) == 3


def test_an_engine_with_room_for_two_learns_the_best_two(
    aggregator: Aggregator, sources: DraftSources, learner: Learner
) -> None:
    names = [str(rank) for rank in range(ENOUGH)]
    aggregator.sheets = {name: sheet(f"{name} said") for name in names}
    for number in range(ENOUGH - 2):
        sources.answered(job(f"own {number}"))
    sources.learn(job("x", *names), PROMPTS)
    assert [answers[0][0] for _, answers in learner.learned] == ["1 said", "0 said"]


def test_answers_that_cannot_be_fetched_cost_no_job(
    aggregator: Aggregator, sources: DraftSources, learner: Learner
) -> None:
    aggregator.sheets = {"there": sheet("said")}
    sources.learn(job("a", "gone", "there"), PROMPTS)
    sources.learn(job("b", "gone"), PROMPTS)
    assert len(learner.learned) == 1
    assert aggregator.calls["FetchAnswerSheet"] == 2


def test_an_engine_that_cannot_learn_gets_nothing(
    aggregator: Aggregator, client: AggregatorClient
) -> None:
    aggregator.sheets = {"there": sheet("said")}
    DraftSources(client, object()).learn(job("a", "there"), PROMPTS)
    assert not aggregator.calls["FetchAnswerSheet"]
