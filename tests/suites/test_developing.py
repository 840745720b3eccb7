"""Tables of development accuracy: their figures, and the settings they choose."""

import pytest

from verification.labs.bundled_tasks import bundled_task

CHANGES = {
    "axes": {
        "method": {"ES": {"method": {"name": "es"}, "population": {"size": 4}}},
        "rate": {
            f"{rate}": {"iterative": {"updates": 2, "rate": rate, "monitor": [1]}}
            for rate in (1, 2, 3)
        },
    },
    "base": {"model": "tiny-thicket", "task": bundled_task("countdown", selection=10, heldout=10)},
}
TABLE = {"kind": "development", "title": "t", "rows": ["method", "rate"], "by": "last"}


@pytest.fixture
def build(load, finish, tables):
    """Fill the table from development accuracies by rate, of both seeds."""

    def make(accuracies, **table):
        loaded = load(**CHANGES, tables=[{**TABLE, **table}])
        for cell in loaded.cells:
            for one in accuracies.get((cell.labels["rate"], cell.seed), ()):
                first, *states = one
                finish(cell, rewards=(0.1, 0.2, 0.3, 0.4), metrics={}, base=first, states=states)
        return tables(loaded)[0]

    return make


def both(one, other, rate):
    return {(rate, 42): [one], (rate, 43): [other]}


ALL = {
    **both((0.5, 0.9, 0.25), (0.5, 0.6, 0.25), "1"),
    **both((0.5, 0.5, 0.75), (0.5, 0.5, 0.5), "2"),
    **both((0.5, 0.7, 0.625), (0.5, 0.7, 0.625), "3"),
}


def test_rows_have_the_first_best_and_last_state_by_seed(build):
    table = build(ALL)
    assert table.columns == ("First", "Best", "Last")
    rows = {row: [one.by_seed for one in of.values()] for row, of in table.by_labels.items()}
    assert rows["ES", "1"] == [{42: 50, 43: 50}, {42: 90, 43: 60}, {42: 25, 43: 25}]


@pytest.mark.parametrize(
    ("table", "note"),
    [
        ({}, "ES: 2 is chosen, by the last state, the first of 2 that are tied"),
        ({"by": "best"}, "ES: 1 is chosen, by the best state"),
        (
            {"by": "best", "stable_within": 20, "adopted": {"ES": "1"}},
            "ES: 3 is chosen, by the best state; not stable: 1; the paper adopted 1",
        ),
        ({"by": "best", "stable_within": 25}, "ES: 1 is chosen, by the best state"),
    ],
)
def test_a_note_names_the_chosen_setting(build, table, note):
    assert build(ALL, **table).notes == (note,)


def test_nothing_is_chosen_while_a_trial_is_missing(build):
    found = {place: accuracies for place, accuracies in ALL.items() if place != ("1", 43)}
    table = build(found)
    assert table.notes == ()
    assert table.missing == 3


def test_trials_that_all_break_down_choose_nothing(build):
    found = {(rate, seed): [(0.5, 0.5, 0.1)] for rate in "123" for seed in (42, 43)}
    assert build(found, stable_within=5).notes == ("ES: no stable trial; not stable: 1, 2, 3",)
