import csv
import json
from dataclasses import replace

import pytest

from modnorm.analysis.candidates import CANDIDATE_TYPES as COLUMNS
from modnorm.analysis.export import write_run

pytestmark = pytest.mark.usefixtures("with_plots")

PARQUET = {"answers.parquet", "descriptors.parquet", "votes.parquet"}
FILES = {*PARQUET, "results.json", "candidates.csv", "report.html", "timings.json"}


def content(directory):
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def test_a_run_directory_holds_everything(run, directory):
    write_run(directory, run)
    plots = [
        "accuracy-by-ensemble-size",
        "accuracy-by-population",
        "reward-histogram",
        "vote-support",
    ]
    assert set(content(directory)) == FILES | {f"plots/{name}.png" for name in plots}


def test_equal_experiments_leave_equal_bytes_but_for_timings(make_run, tmp_path):
    write_run(tmp_path / "a", make_run(worker="one"))
    write_run(tmp_path / "b", make_run(worker="two"))
    first, second = content(tmp_path / "a"), content(tmp_path / "b")
    assert first.pop("timings.json") != second.pop("timings.json")
    assert first == second


def test_candidates_are_in_order_with_rank_and_gain(make_run, directory):
    run = make_run(prefixes=(20,), failed=frozenset({3}))
    write_run(directory, run)
    with (directory / "candidates.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS)
    assert [int(row["index"]) for row in rows] == list(range(20))
    assert rows[3] == {
        **dict.fromkeys(COLUMNS, ""),
        "index": "3",
        "seed": "1003",
        "state": "failed",
        "selection_tokens": "300",
        **{name: "0" for name in COLUMNS if name.endswith(("_answers", "_valid", "_truncated"))},
        "selection_correct": "0",
    }
    best = next(row for row in rows if row["rank"] == "1")
    assert int(best["index"]) == run.order[0]
    assert float(best["gain"]) == float(best["selection_reward"]) - 0.21


def test_timings_hold_what_may_differ(make_run, directory):
    write_run(directory, make_run(prefixes=(20,), failed=frozenset({3})))
    timings = json.loads((directory / "timings.json").read_text())
    assert timings["worker"] == "worker-1"
    assert timings["repeated_attempts"] == {"selection": 0, "heldout": 0}
    assert timings["scope"]["device"]["search"] == 20 * 1.5
    assert timings["candidates"][3]["error"] == "non-finite logits"
    assert timings["candidates"][4] == {
        "index": 4,
        "attempts": 1,
        "worker": "worker-1",
        "seconds": 1.5,
        "heldout_attempts": 1,
        "heldout_seconds": 0.0,
        "error": "",
        "environment": None,
        "heldout_environment": None,
    }


def test_a_run_without_ensembles_is_written_too(run, directory):
    write_run(directory, replace(run, ensembles=[], votes={}))
    document = json.loads((directory / "results.json").read_text())
    assert document["ensembles"] == document["statistics"] == document["experts"] == []
    assert set(content(directory / "plots")) == {"reward-histogram.png"}


def test_candidates_must_be_the_whole_population_in_order(run):
    with pytest.raises(ValueError, match="0, 1, 2"):
        replace(run, candidates=run.candidates[1:])
