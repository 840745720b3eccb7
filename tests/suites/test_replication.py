"""The tables of the replication are built from small copies of runs, digit by digit."""

import json
from itertools import product
from pathlib import Path
from zipfile import ZipFile

import pandas as pd
import pytest

from modnorm.analysis.parquet_files import ANSWER_SCHEMA
from modnorm.analysis.run_files import ANSWERS
from modnorm.suites.building import build_tables
from modnorm.suites.outcomes import read_suite
from scripts.joined_copies import join_copies
from scripts.recorded_tables import Recorded, matching_tables, pack_matching, tables_beyond
from scripts.replication import CELLS, collect
from scripts.replication_tables import BEGIN, END, _difference_row, write_tables
from scripts.run_copies import unpack_run

ROOT = Path(__file__).parents[2]
COPIES = sorted((ROOT / CELLS).glob("*.zip"))


def tables_of(cells, tmp_path):
    """Return the tables of cells and the page with their claims; figures are not drawn."""
    page, folder, out = tmp_path / "page.md", tmp_path / "folder", tmp_path / "out"
    page.write_text(f"before\n{BEGIN}\nSTALE\n{END}\nafter\n")
    folder.mkdir()
    write_tables(cells, out, page, folder, lambda *_: None)
    return (out / "tables.md").read_text(), page.read_text()


def test_the_claims_name_places_of_the_suites(tmp_path, monkeypatch):
    """Without any cell, every case of every claim is open, and the page is filled."""
    monkeypatch.chdir(ROOT)
    tables, text = tables_of(tmp_path / "none", tmp_path)
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "STALE" not in text
    rows = [line.split(" | ") for line in tables.splitlines() if line.startswith("| ")]
    cases = [row for row in rows if len(row) == 8][2:]
    assert {row[-1] for row in cases} == {"open |"}
    assert "Transfer 12" in text
    paper = {row[1]: row[3] for row in cases if row[0] == "| Transfer"}
    assert paper["1.5B, GSM8K"] == "+5.81"
    assert paper["0.5B, MBPP"] == "-2.00"
    ablations = {row[1]: row[3] for row in cases if row[0] == "| Ablations"}
    assert ablations["Frobenius norm"] == "+3.40"


@pytest.mark.skipif(not COPIES, reason="no cell has been collected yet")
def test_a_table_is_rebuilt_from_the_copies_digit_by_digit(tmp_path, monkeypatch):
    """Metrics follow from the votes, and the committed tables and claims from the copies."""
    monkeypatch.chdir(ROOT)
    told = Path("replication/tables.md").read_text()
    smallest = min(COPIES, key=lambda copy: copy.stat().st_size)
    run = unpack_run(smallest, tmp_path / "run")
    votes = run.vote_counts()
    for each in run.ensembles:
        is_place = votes["population"].eq(each.population)
        is_place &= votes["ensemble_size"].eq(each.ensemble_size)
        assert votes["correct"][is_place].sum() == each.correct
    tables, page = tables_of(CELLS, tmp_path)
    assert tables == told
    claims, written = (
        text.partition(BEGIN)[2].partition(END)[0]
        for text in (page, Path("docs/replication.md").read_text())
    )
    assert claims == written


@pytest.mark.skipif(not COPIES, reason="no cell has been collected yet")
def test_a_cell_of_100_candidates_fills_places_of_300_but_no_times(tmp_path, monkeypatch):
    """One cell of the transfer suite stands in for a cell of the scaling suite and is named."""
    monkeypatch.chdir(ROOT)
    (copy,) = (each for each in COPIES if "1.5b_gsm8k_modular_norm_n100_seed42" in each.name)
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / copy.name).symlink_to(copy)
    run = unpack_run(copy, tmp_path / "run")
    tables, _ = tables_of(tmp_path / "cells", tmp_path)
    parts = tables.split("\n## ")
    section = {part.partition("\n")[0]: " ".join(part.split()) for part in parts}
    scaling, times = section["coder-population-scaling"], section["coder-wall-clock"]
    assert "0 cells, 12 open" in scaling
    told = "filled up to N = 100 from runs of another population size: mn-randopt_gsm8k_42. Tables"
    assert told in scaling
    row = "| GSM8K | MN RandOpt |"
    at_25, at_300 = (scaling.partition(f"{row} {size} |")[2] for size in (25, 300))
    assert f"{100 * run.ensemble(25, 25).metric:.2f} (1 of 3 seeds)" in at_25
    assert at_300.partition("| ours |")[2].startswith(" not run | not run | not run | not run |")
    assert times.endswith("--out runs/coder-wall-clock`")


def test_a_seed_of_two_runs_counts_once_in_further_analyses(tmp_path):
    copies = [each for each in COPIES if "1.5b_countdown_randopt_n300_seed42" in each.name]
    assert len(copies) == 2
    pool = [unpack_run(copy, tmp_path / copy.stem) for copy in copies]
    told = "\n".join(tables_beyond(pool))
    assert "coder-1.5b countdown randopt N=300, seeds: 1 |" in told
    assert "seeds: 2" not in told


def test_the_recorded_matching_is_tabled():
    (table,) = matching_tables(ROOT / "replication/matchings")
    assert table in (ROOT / "replication/tables.md").read_text()


def test_a_collected_matching_is_tabled_as_the_recorded_one(tmp_path):
    (recorded,) = (ROOT / "replication/matchings").glob("*.zip")
    run = tmp_path / "run"
    with ZipFile(recorded) as file:
        file.extractall(run)
    origin = json.loads((run / "origin.json").read_text())
    del origin["card"]
    written = pack_matching(run, run / "spec.yaml", tmp_path, origin)
    assert written.name == recorded.name
    assert [*matching_tables(tmp_path)] == [*matching_tables(recorded.parent)]


def test_the_same_candidates_are_compared_as_the_files_of_candidates_say(tmp_path):
    names = [f"coder-1.5b_countdown_{name}_n100_seed42" for name in ("modular_norm", "randopt")]
    copies = [each for each in COPIES if each.name.startswith(tuple(names))]
    pool = [unpack_run(copy, tmp_path / copy.stem) for copy in copies]
    told = "\n".join(tables_beyond(pool))
    one, other = (pd.read_csv(run.path / "candidates.csv").set_index("index") for run in pool)
    similar = one["selection_reward"].corr(other["selection_reward"])
    shared = ((one["rank"] <= 25) & (other["rank"] <= 25)).sum()
    line = f"| coder-1.5b countdown randopt N=100 | 42 | {similar:.2f} | {shared} |"
    assert line in told.splitlines()


@pytest.mark.parametrize("task", ["gsm8k", "countdown"])
def test_copies_of_100_and_300_join_as_if_they_were_one_run(task, tmp_path):
    """The joined run has the ensembles and votes of a run that took its candidates from both."""
    names = tuple(f"coder-1.5b_{task}_randopt_n{size}_seed42" for size in (100, 300))
    copies = [each for each in COPIES if each.name.startswith(names)]
    runs = [unpack_run(each, tmp_path / each.stem) for each in copies]
    first, second, third = sorted(runs, key=lambda run: len(run.ensembles))
    places = [each.place for each in third.ensembles]
    joined = join_copies([second, first], places, tmp_path / "joined")
    assert {each.place for each in joined.ensembles} == {
        *product([25, 50, 100, 300], [1, 5, 10, 25])
    }
    entries = json.loads((joined.path / "results.json").read_text())["ensembles"]
    assert entries[-4:] == third.document["ensembles"][-4:]
    votes, counted = joined.vote_counts(), third.vote_counts()
    at_300, as_recorded = (
        each[each["population"] == 300].reset_index(drop=True) for each in (votes, counted)
    )
    pd.testing.assert_frame_equal(at_300, as_recorded)
    of_100 = votes[votes["population"] <= 100].reset_index(drop=True)
    pd.testing.assert_frame_equal(of_100, second.vote_counts())
    assert joined.candidates == first.candidates
    assert joined.full_voters == first.full_voters | second.full_voters
    assert join_copies([third, second, first], places, tmp_path / "none") is third


def test_a_metric_that_is_no_accuracy_of_rows_has_an_interval_of_seeds(load, finish, tmp_path):
    """As the balanced accuracy of USPTO-50K: all votes are equal, the metrics differ."""
    table = {"kind": "metric", "title": "t", "rows": ["method", "N", "K"], "at": {"task": "more"}}
    loaded = load(tables=[table])
    metrics = {
        "mn_more_42": 0.5,
        "mn_more_43": 0.4,
        "randopt_more_42": 0.3,
        "randopt_more_43": 0.3,
    }
    for cell in loaded.cells:
        if cell.id in metrics:
            finish(cell, (0.1, 0.2, 0.3, 0.4), {(4, 2): metrics[cell.id]}, right=[2, 1, 0])
    data = read_suite(loaded, tmp_path / "out")
    places = {
        side: {"method": method, "task": "more", "N": 4, "K": 2}
        for side, method in (("of", "MN"), ("against", "RandOpt"))
    }
    (built,) = build_tables(data)
    told = _difference_row({"label": "x", "paper": None, **places}, data, built)
    assert told == ("x", "2", "", "+15.00", "[10.0, 20.0]", "", "too few seeds to tell")


def test_a_run_with_a_failed_candidate_answers_no_question_about_selections(tmp_path):
    """Rewards stand by index: those after a failed candidate must not move up."""
    (copy,) = (each for each in COPIES if "0.5b_gsm8k_randopt_n100_seed42" in each.name)
    run = unpack_run(copy, tmp_path / "run")
    assert Recorded(run).is_whole
    answers = run.answers_frame()
    failed = answers["split"].eq("selection") & answers["candidate"].eq(7)
    answers[~failed].to_parquet(run.path / ANSWERS, index=False, schema=ANSWER_SCHEMA)
    recorded = Recorded(run)
    assert not recorded.is_whole
    assert len(recorded.rewards) == 100


def test_collecting_goes_on_after_directories_without_results(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("scripts.replication.load_run", lambda _: pytest.fail("no results"))
    unfinished, empty = tmp_path / "unfinished", tmp_path / "empty"
    for path in (unfinished, empty):
        path.mkdir()
    (unfinished / "spec.json").write_text("{}")
    assert collect([unfinished, empty], tmp_path / "cells", command="c", commit="d") == []
    assert capsys.readouterr().out.splitlines() == [
        f"{path} is left out: it has no results" for path in (unfinished, empty)
    ]
