"""A run in which experts skipped answers says so, and has its other figures."""

from modnorm.analysis.comparison import compare_runs
from modnorm.analysis.document import describe_shortcuts, results_document
from modnorm.analysis.export import write_run
from modnorm.analysis.parquet_files import read_votes
from modnorm.analysis.run import load_run


def test_all_but_the_partial_votes_is_as_in_the_whole_run(run, shortened):
    whole, short = results_document(run), results_document(shortened)
    for name in ("base", "candidates", "data", "spec", "statistics"):
        assert short.get(name) == whole.get(name)
    for one, other in zip(whole["ensembles"], short["ensembles"], strict=True):
        assert one["experts"] == other["experts"]
        assert (one["metric"], one["correct"]) == (other["metric"], other["correct"])
    assert [e["index"] for e in short["experts"]] == [e["index"] for e in whole["experts"]]
    assert [each["agreement"] is None for each in short["ensembles"]] == [False] * 8 + [True]


def test_what_was_left_out_is_told(run, shortened, directory):
    document = results_document(shortened)
    assert [each["partial_votes"] for each in document["ensembles"]] == [0] * 8 + [1]
    told = describe_shortcuts(document)
    assert told is not None
    assert told.startswith("On up to 1 held-out rows the vote was settled")
    assert describe_shortcuts(results_document(run)) is None
    write_run(directory, shortened)
    assert sum(vote.skipped for vote in read_votes(directory)) == 1
    assert "population.statistics: full" in (directory / "report.html").read_text()


def test_a_shortened_run_compares_as_the_whole_one(run, shortened, tmp_path):
    for name, one in (("whole", run), ("short", shortened)):
        write_run(tmp_path / name, one)
    rows = compare_runs([load_run(tmp_path / name) for name in ("whole", "short")])
    assert rows[0]["rank_1"] == rows[1]["rank_1"]
    assert rows[1]["differs"] == []
