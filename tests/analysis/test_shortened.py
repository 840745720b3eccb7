"""A run in which work was left out says so, and takes no interval for a score."""

import csv
from dataclasses import asdict

from modnorm.analysis.comparison import compare_runs
from modnorm.analysis.document import describe_shortcuts, results_document
from modnorm.analysis.export import write_run
from modnorm.analysis.parquet_files import read_votes
from modnorm.analysis.run import load_run


def test_experts_votes_and_accuracies_are_those_of_the_whole_work(run, shortened):
    whole, short = results_document(run), results_document(shortened)
    for name in ("base", "data", "spec"):
        assert short.get(name) == whole.get(name)
    for one, other in zip(whole["ensembles"], short["ensembles"], strict=True):
        assert one["experts"] == other["experts"]
        assert (one["metric"], one["correct"]) == (other["metric"], other["correct"])
    assert [e["index"] for e in short["experts"]] == [e["index"] for e in whole["experts"]]
    assert short["experts"][0] == whole["experts"][0]


def test_what_was_left_out_is_told(run, shortened):
    document = results_document(shortened)
    candidates = document["candidates"]
    stopped = [each.index for each in shortened.candidates if each.state == "stopped"]
    assert candidates["stopped"] == stopped
    assert candidates["failed"] == []
    assert candidates["scored"] == 48 - len(stopped) < 48
    assert [each["partial_votes"] for each in document["ensembles"]] == [0] * 8 + [1]
    told = describe_shortcuts(document)
    assert told is not None
    assert told.startswith(f"{len(stopped)} of 48 candidates were stopped early; on up to 1 held")
    assert describe_shortcuts(results_document(run)) is None


def test_figures_that_intervals_leave_open_are_left_out(run, shortened):
    whole, short = results_document(run), results_document(shortened)
    for old, new in zip(whole["statistics"], short["statistics"], strict=True):
        known = {name for name, value in new.items() if value is not None}
        assert {name: old[name] for name in known - {"scored", "stopped"}} == {
            name: new[name] for name in known - {"scored", "stopped"}
        }
        assert new["mean"] is None
        assert new["sample_sd"] is None
        assert {"top1", "top5_mean", "top10_mean"} <= known
    assert whole["statistics"][-1]["stopped"] == 0
    assert [each["agreement"] is None for each in short["ensembles"]] == [False] * 8 + [True]
    ranks = {each["index"]: each["rank"] for each in short["experts"]}
    expected = {each["index"]: each["rank"] for each in whole["experts"]}
    assert {i: rank for i, rank in ranks.items() if rank is not None}.items() <= expected.items()
    assert None in ranks.values()
    assert list(ranks.values())[:10] == list(range(1, 11))


def test_files_hold_bounds_where_there_is_no_score(shortened, directory):
    write_run(directory, shortened)
    rows = list(csv.DictReader((directory / "candidates.csv").read_text().splitlines()))
    for row, candidate in zip(rows, shortened.candidates, strict=True):
        interval = candidate.stopped
        bounds = ("", "") if interval is None else tuple(map(str, asdict(interval).values()))
        assert (row["reward_lower"], row["reward_upper"]) == bounds
        assert bool(row["selection_reward"]) is (interval is None)
        assert interval is None or (row["rank"], row["gain"]) == ("", "")
    assert sum(vote.skipped for vote in read_votes(directory)) == 1
    report = (directory / "report.html").read_text()
    stopped = len(shortened.stopped)
    assert f"{48 - stopped} of 48 candidates scored, {stopped} stopped early" in report
    assert "population.statistics: full" in report


def test_a_shortened_run_compares_as_the_whole_one(run, shortened, tmp_path):
    for name, one in (("whole", run), ("short", shortened)):
        write_run(tmp_path / name, one)
    rows = compare_runs([load_run(tmp_path / name) for name in ("whole", "short")])
    assert rows[0]["rank_1"] == rows[1]["rank_1"]
    assert rows[1]["differs"] == []
