"""What is drawn is what docs/gpu.md states, and the scorer agrees with it."""

import numpy as np
import pytest

from benchmarks.gpu_search.workload import RATES, Workload, drawn_scores

CANDIDATES = 20


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray]:
    """Lengths and whether answers are right, of many rows."""
    workload = Workload(rows=2000)
    answers = [workload.answers(candidate) for candidate in range(CANDIDATES)]
    return (
        np.array([one.lengths for one in answers]),
        np.array([one.right for one in answers]),
    )


def test_lengths_are_long_tailed_with_one_in_ten_at_the_cap(
    drawn: tuple[np.ndarray, np.ndarray],
) -> None:
    lengths, _ = drawn
    assert np.median(lengths) == pytest.approx(180, rel=0.05)
    assert (lengths == 1024).mean() == pytest.approx(0.1, abs=0.01)
    assert lengths.min() >= 1
    assert lengths.max() == 1024


def test_long_answers_are_mostly_wrong(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    lengths, right = drawn
    short = right[lengths <= 360].mean()
    assert right[(lengths > 360) & (lengths < 1024)].mean() == pytest.approx(short / 2, rel=0.1)
    assert right[lengths == 1024].mean() == pytest.approx(short / 20, rel=0.3)


@pytest.mark.parametrize("rates", sorted(RATES))
def test_the_share_of_right_answers_is_the_rate(rates: str) -> None:
    workload = Workload(rows=20_000, rates=rates)
    rate = RATES[rates](np.random.default_rng((workload.seed, 1, 3)))
    assert np.mean(workload.answers(3).right) == pytest.approx(rate, abs=0.02)


def test_a_candidate_does_not_depend_on_others_nor_on_the_process() -> None:
    workload = Workload(rows=50)
    assert workload.answers(7) == Workload(rows=50).answers(7)
    assert workload.answers(7) != workload.answers(8)
    assert workload.prompts() == Workload(rows=50).prompts()
    assert all(120 <= len(prompt) <= 180 for prompt in workload.prompts())


def test_the_scorer_gives_what_was_drawn() -> None:
    workload = Workload(rows=300)
    answers, score = workload.answers(0), drawn_scores(workload, 1)[0]
    wrong_but_whole = sum(
        not right and length < workload.cap
        for right, length in zip(answers.right, answers.lengths, strict=True)
    )
    expected = (1.1 * sum(answers.right) + 0.1 * wrong_but_whole) / 300
    assert score == pytest.approx(expected)


def test_recorded_texts_count_where_an_answer_has_no_drawn_ending() -> None:
    workload = Workload(rows=300)
    answers, silent = workload.answers(0), drawn_scores(workload, 1)[0]
    said = drawn_scores(workload, 1, lambda *_: "</think>\n<answer>1</answer>")[0]
    cut_wrong = sum(
        not right and length >= workload.cap
        for right, length in zip(answers.right, answers.lengths, strict=True)
    )
    assert cut_wrong > 0
    assert said == pytest.approx(silent + 0.1 * cut_wrong / 300)
