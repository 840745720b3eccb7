"""A run of another population size gives a cell the values that both share, and no others."""

from collections.abc import Callable
from math import nan

import pytest

from modnorm.analysis.run import Run, load_run
from modnorm.suites import Cell
from modnorm.suites.building import build_tables
from modnorm.suites.outcomes import TidySuite, find_stand_ins
from tests.suites.test_building import PAIR

REWARDS = (0.2, 0.3, 0.1, 0.5, 0.6, 0.7, 0.8, 0.9)
PLACE = {"method": "MN", "task": "more"}
SMALL = {"size": 4, "prefixes": [2, 4], "ensemble_sizes": [1, 2]}
LARGE = {"size": 8, "prefixes": [2, 4, 8], "ensemble_sizes": [1, 2]}


@pytest.fixture
def cell(load) -> Callable[..., Cell]:
    """Return the cell of Modular Norm and seed 42 with some settings of the population."""

    def make(**population: object) -> Cell:
        loaded = load(base={"model": "tiny-thicket", "population": population})
        found: Cell = next(each for each in loaded.cells if each.id == "mn_more_42")
        return found

    return make


@pytest.fixture
def run(cell, finish) -> Callable[..., Run]:
    """Return a finished run of this cell, whose votes have 2, 1 and 0 right experts."""

    def make(**population: object) -> Run:
        one = cell(**population)
        size = one.spec.population.size
        metrics = {(2, 2): 0.25, (4, 2): 0.5, (8, 2): 0.75}
        place = finish(one, REWARDS[:size], metrics, right=[2, 1, 0])
        return load_run(place / one.id)

    return make


@pytest.fixture
def tidy(load) -> Callable[..., TidySuite]:
    """Return a suite with some population whose only values are those of a stand-in."""

    def make(run: Run, population: object, **changes: object) -> TidySuite:
        loaded = load(base={"model": "tiny-thicket", "population": population}, **changes)
        return TidySuite(loaded, {}, {}, {}, stand_ins={"mn_more_42": run})

    return make


def test_a_smaller_population_gives_the_prefixes_that_it_has(run, tidy):
    suite = tidy(run(**SMALL), LARGE)
    metrics = [suite.by_seed("metric", {**PLACE, "N": n, "K": 2})[42] for n in (2, 4, 8)]
    assert metrics == pytest.approx([25.0, 50.0, nan], nan_ok=True)
    votes = {n: suite.at("right_experts", {**PLACE, "N": n, "K": 2}) for n in (4, 8)}
    assert votes[4]["value"].dropna().tolist() == [2, 1, 0]
    assert votes[8]["value"].isna().all()
    assert suite.by_seed("base", PLACE)[42] == 20.0


def test_a_smaller_population_gives_gains_only_to_places_that_it_covers(run, tidy):
    suite = tidy(run(**SMALL), LARGE)
    counts = {n: suite.at("reward_gain", {**PLACE, "N": n}).count()["value"] for n in (2, 4, 8)}
    assert counts == {2: 4, 4: 4, 8: 0}
    for measure in ("reward_gain", "accuracy_gain"):
        assert suite.values(measure)["value"].isna().all()  # of the cell's whole population


def test_a_larger_population_gives_its_first_candidates(run, tidy):
    suite = tidy(run(**LARGE), SMALL)
    assert suite.by_seed("metric", {**PLACE, "N": 4, "K": 2})[42] == 50.0
    gains = suite.values("reward_gain").dropna()
    assert gains["item"].tolist() == [0, 1, 2, 3]
    assert gains["value"].tolist() == pytest.approx([0, 10, -10, 30])


def test_no_table_takes_times_of_another_population(run, tidy):
    times = [
        {"kind": "wall_clock", "title": "w", "rows": ["task", "method"]},
        {"kind": "speedup", "title": "s", "compare": [PAIR]},
    ]
    small = run(**SMALL)
    suite = tidy(small, LARGE, tables=times)
    assert not any(
        figure.by_seed
        for table in build_tables(suite)
        for row in table.rows
        for figure in row.figures
    )
    own = build_tables(TidySuite(suite.loaded, {"mn_more_42": small}, {}, {}))
    assert own[0].by_labels["more", "MN"]["Search"].by_seed == {42: 5.0}


def test_runs_of_equal_settings_stand_in_the_largest_first(run, cell):
    runs = [run(**SMALL), run(**LARGE)]
    one = cell(size=16, prefixes=[2, 16], ensemble_sizes=[1, 2])
    assert find_stand_ins(one, runs)[0] is runs[1]
    assert [*find_stand_ins(one, runs[:1])] == runs[:1]
    assert not find_stand_ins(cell(size=16, ensemble_sizes=[1]), runs)
    assert not find_stand_ins(cell(**LARGE, noise="randopt-reseed-v1"), runs)


def test_populations_that_are_not_nested_share_no_candidates(run, cell):
    published = run(**SMALL, pool="published")
    assert not find_stand_ins(cell(**LARGE, pool="published"), [published])
