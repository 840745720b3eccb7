"""Processes share the candidates. Early stops do not change which candidates are best."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu_search.candidate_outcome import CandidateOutcome, Stopwatch, together
from benchmarks.gpu_search.child_processes import Child, ending
from benchmarks.gpu_search.contenders import contender_named
from benchmarks.gpu_search.driver import SearchPlan, search
from benchmarks.gpu_search.driver_messages import ContenderSettings
from benchmarks.gpu_search.result_file import ResultFile
from benchmarks.gpu_search.search import wrongs
from benchmarks.gpu_search.workload import Workload, drawn_scores
from modnorm.search.ranking import rank

POPULATION, EXPERTS = 24, 4
WORKLOAD = Workload(rows=20)


@pytest.fixture(scope="module")
def engines() -> Iterator[Sequence[Child]]:
    settings = ContenderSettings("", WORKLOAD, POPULATION)
    children = [
        Child(f"engine {n}", "tests.gpu_search.drawn_contender", settings) for n in range(2)
    ]
    with ending(*children):
        yield children


def test_every_candidate_is_scored_once(engines: Sequence[Child]) -> None:
    outcomes, _ = search(engines, SearchPlan(POPULATION))
    found = {one.candidate: one.score for one in outcomes}
    assert len(outcomes) == POPULATION
    assert found == drawn_scores(WORKLOAD, POPULATION)


def test_early_stop_keeps_the_best(engines: Sequence[Child]) -> None:
    outcomes, _ = search(engines, SearchPlan(POPULATION, EXPERTS))
    scores = {one.candidate: one.score for one in outcomes}
    plain = drawn_scores(WORKLOAD, POPULATION)
    best, expected = (
        rank([found[index] for index in range(POPULATION)], POPULATION)[:EXPERTS]
        for found in (scores, plain)
    )
    assert best == expected
    assert any(score is None for score in scores.values())


def _wrongs(outcomes: Sequence[CandidateOutcome], *, late: bool = False) -> dict[str, int]:
    return wrongs(outcomes, drawn_scores(WORKLOAD, POPULATION), EXPERTS, late=late)


def test_the_check_names_what_is_wrong(engines: Sequence[Child]) -> None:
    outcomes, _ = search(engines, SearchPlan(POPULATION, EXPERTS))
    *others, best = sorted(outcomes, key=lambda one: one.score or 0.0)
    assert _wrongs(outcomes) == {}
    assert _wrongs([*others, replace(best, score=2.0)]) == {"scores": 1}
    assert _wrongs([*others, replace(best, score=None)]).keys() == {"best"}
    assert _wrongs([*others, replace(best, astray=1)]) == {"answers": 1}


def test_a_candidate_may_only_be_missing_when_the_time_is_over(engines: Sequence[Child]) -> None:
    outcomes, _ = search(engines, SearchPlan(POPULATION))
    assert _wrongs(outcomes[1:]) == {"missing": 1}
    assert _wrongs([outcomes[-1], *outcomes[1:]]) == {"missing": 1}
    assert _wrongs(outcomes[1:], late=True) == {}
    assert _wrongs([replace(outcomes[1], astray=1)], late=True) == {"answers": 1}


def test_no_candidate_is_begun_after_the_time_is_over(engines: Sequence[Child]) -> None:
    assert search(engines, SearchPlan(POPULATION, seconds=-1.0))[0] == []


def test_a_contender_that_ends_is_reported() -> None:
    child = Child("it", "tests.gpu_search.drawn_contender", ContenderSettings("", WORKLOAD, 1))
    with ending(child), pytest.raises(SystemExit, match="it has ended with 1"):
        child.ask("fail")


def test_results_are_kept_for_a_next_command(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    ResultFile(path, {"seed": 1}).add("one", {"seconds": 2.0})
    assert ResultFile(path, {"seed": 1}).contenders == {"one": {"seconds": 2.0}}
    with pytest.raises(SystemExit, match="other settings"):
        ResultFile(path, {"seed": 2})


def test_results_of_two_machines_are_not_mixed(tmp_path: Path) -> None:
    path, here = tmp_path / "results.json", {"device": "GPU", "processor": "A", "bandwidth": 2.0}
    ResultFile(path, {}).found_on(here)
    ResultFile(path, {}).found_on({**here, "bandwidth": 3.0})
    assert ResultFile(path, {}).content["floor"] == here
    for other in ({"device": "another"}, {"processor": "B"}):
        with pytest.raises(SystemExit, match="another machine"):
            ResultFile(path, {}).found_on({**here, **other})


def test_contenders_have_names() -> None:
    assert contender_named("mps3+stop").engines == 3
    assert contender_named("mps3+stop").stops
    assert contender_named("one").pool == "one"
    for wrong in ("published+stop", "mps1", "two", "one@other"):
        with pytest.raises(SystemExit, match="no contender"):
            contender_named(wrong)


def test_steps_are_counted_by_their_sequences() -> None:
    stopwatch = Stopwatch()
    for running in (200, 3, 2):
        stopwatch.step(running)
    classes = stopwatch.take()
    assert {upper: steps for upper, (steps, _, _) in classes.items()} == {256: 1, 4: 2}
    assert together([classes, classes])[4][0] == 4
    assert stopwatch.take() == {}
