import random
from collections.abc import Callable
from pathlib import Path

import pytest

from modnorm.analysis.run_data import CandidateRow, EnsembleRow, RunData
from modnorm.search.answers import SPLITS
from modnorm.search.ranking import select_experts
from modnorm.search.voting import RowVote, plurality
from tests.small_results import rows_record

ROWS = 60
SOURCE = "bundled:countdown-selection"


def _votes(answers: list[list[str | None]]) -> list[RowVote]:
    """Vote on rows whose right answer is "1"; `answers` holds one list an expert."""
    rows = zip(*answers, strict=True)
    return [plurality(votes, [vote == "1" for vote in votes]) for votes in rows]


def _spec(size: int, method: str) -> dict[str, object]:
    return {
        "name": f"countdown <{method}>",
        "model": {"name": "tiny-thicket"},
        "task": {"name": "countdown", "selection": {"source": SOURCE}},
        "method": {"name": method, "radius": 0.32},
        "population": {"size": size, "seed": 42, "noise": "portable-v1"},
    }


def _provenance() -> dict[str, object]:
    digest = "ab" * 32
    return {
        "model_digest": digest,
        "profile_digest": "",
        "selection_digest": digest,
        "heldout_digest": digest,
        "prompts_digest": digest,
        "scorer": "countdown-v2",
    }


def _answers(generator: random.Random, skill: float) -> list[str | None]:
    return [
        "1" if generator.random() < skill else generator.choice(["2", "3", "4", None])
        for _ in range(ROWS)
    ]


@pytest.fixture(scope="session")
def make_run() -> Callable[..., RunData]:
    """Build a run whose candidates answer at random, each with its own skill."""

    def make(
        *,
        prefixes: tuple[int, ...] = (12, 24, 48),
        sizes: tuple[int, ...] = (1, 5, 10),
        failed: frozenset[int] = frozenset(),
        method: str = "modular_norm",
        worker: str = "worker-1",
    ) -> RunData:
        generator = random.Random(7)
        skills = [generator.betavariate(2, 5) for _ in range(prefixes[-1])]
        rewards = [None if i in failed else round(skill, 2) for i, skill in enumerate(skills)]
        selection = select_experts(rewards, prefixes, sizes)
        answers = {i: _answers(generator, skill) for i, skill in enumerate(skills)}
        votes = {key: _votes([answers[i] for i in experts]) for key, experts in selection.items()}
        experts = {i for chosen in selection.values() for i in chosen}
        candidates = [
            CandidateRow(
                index=i,
                seed=1000 + i,
                state="scored" if reward is not None else "failed",
                selection_reward=reward,
                heldout_metric=answers[i].count("1") / ROWS if i in experts else None,
                selection_tokens=100 * i,
                selection_answers=0 if reward is None else 40,
                selection_correct=0 if reward is None else round(40 * skills[i]),
                heldout_answers=ROWS if i in experts else 0,
                heldout_attempts=int(i in experts),
                worker=worker,
                seconds=1.5,
                error="" if reward is not None else "non-finite logits",
            )
            for i, reward in enumerate(rewards)
        ]
        ensembles = [
            EnsembleRow(
                population=n,
                ensemble_size=k,
                experts=chosen,
                metric=sum(vote.correct for vote in votes[n, k]) / ROWS,
                correct=sum(vote.correct for vote in votes[n, k]),
                rows=ROWS,
            )
            for (n, k), chosen in selection.items()
        ]
        return RunData(
            spec=_spec(prefixes[-1], method),
            provenance=_provenance(),
            data=dict.fromkeys(SPLITS, rows_record(ROWS, SOURCE, "ab" * 32)),
            candidates=candidates,
            base=CandidateRow(
                *(-1, 0, "scored", 0.21),
                heldout_metric=0.2,
                selection_answers=40,
                selection_correct=8,
                heldout_answers=ROWS,
            ),
            ensembles=ensembles,
            votes=votes,
            timings={"worker": worker},
        )

    return make


@pytest.fixture
def run(make_run: Callable[..., RunData]) -> RunData:
    return make_run()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "run"
