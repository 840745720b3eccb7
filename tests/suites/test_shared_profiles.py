"""A shared profile whose own cell does not run is calibrated first."""

import pytest

from modnorm.analysis.run_files import RESULTS
from modnorm.calibration.profile import Profile
from modnorm.cli.suite import find_profiles


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MODNORM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_profile_of_a_cell_that_does_not_run_is_calibrated_once(load, cache, tmp_path):
    loaded = load(
        profiles={"axis": "task", "from": "puzzles"},
        base={
            "model": "tiny-thicket",
            "calibration": {"examples": 1, "iterations": 1, "layers_per_example": 8},
            "population": {"size": 4, "prefixes": [2, 4], "ensemble_sizes": [1, 2]},
        },
    )
    alone = [cell for cell in loaded.cells if cell.labels["task"] == "more"]
    found = find_profiles(loaded, alone, tmp_path, calibrate=True)
    origins = {cell.profile_of for cell in alone if cell.profile_of}
    assert found.keys() == origins
    (digest,) = set(found.values())
    assert Profile.load(cache / "profiles" / f"{digest}.json").digest == digest
    assert find_profiles(loaded, alone, tmp_path, calibrate=True) == found
    assert find_profiles(loaded, loaded.cells, tmp_path, calibrate=True) == {}


def test_damaged_results_of_a_cell_whose_profile_is_not_used_are_not_read(load, tmp_path):
    loaded = load(profiles={"axis": "task", "from": "puzzles"})
    damaged, *_, chosen = loaded.cells
    assert chosen.profile_of != damaged.id
    (tmp_path / damaged.id).mkdir()
    (tmp_path / damaged.id / RESULTS).write_text("{}")
    assert find_profiles(loaded, [chosen], tmp_path, calibrate=False) == {}
