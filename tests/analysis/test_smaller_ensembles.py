"""Fewer experts than a run reports vote as if the run had reported them."""

import json
import random
from dataclasses import replace

import pandas as pd
import pytest

from modnorm.analysis.answers import AnswerRecord
from modnorm.analysis.comparison import compare_runs
from modnorm.analysis.export import write_run
from modnorm.analysis.parquet_files import write_answers
from modnorm.analysis.run import load_run
from modnorm.analysis.run_data import EnsembleRow, VoteRow
from modnorm.analysis.run_tables import tabulate_runs
from modnorm.analysis.smaller_ensembles import add_ensembles
from modnorm.errors import PreconditionError
from modnorm.search.voting import Ballot, count_votes
from modnorm.tasks import get_task
from modnorm.tasks.protocol import Judgement
from tests.analysis.conftest import ROWS
from tests.faults import error_at

pytestmark = pytest.mark.usefixtures("without_plots")
SIZES = (1, 2, 5, 10)


def ballots_of(run, seed):
    """Answer the rows as each expert of the run at random, from few different answers."""
    generator = random.Random(seed)
    experts = sorted({expert for each in run.ensembles for expert in each.experts})
    ballots = {}
    for expert in experts:
        votes = [generator.choice(["1", "1", "2", "3", None]) for _ in range(ROWS)]
        ballots[expert] = Ballot.from_answers([Judgement(0.0, one, one == "1") for one in votes])
    return ballots


def reporting(run, ballots, sizes, metric):
    """Return a run that reports ensembles of these sizes, whose experts vote by the ballots."""
    ensembles, votes = [], {}
    for whole in (each for each in run.ensembles if each.ensemble_size == max(SIZES)):
        for size in sizes:
            experts = whole.experts[:size]
            counted = count_votes([ballots[expert] for expert in experts])
            right = [vote.correct for vote in counted]
            place = (whole.population, size)
            votes[place] = [
                VoteRow(row, **{name: getattr(vote, name) for name in vote.__slots__})
                for row, vote in enumerate(counted)
            ]
            ensembles.append(EnsembleRow(*place, experts, metric(right), sum(right), ROWS))
    return replace(run, ensembles=ensembles, votes=votes)


def written(directory, run, ballots, rows, task, left_out=()):
    """Write the files of a run directory that the ensembles of smaller sizes need."""
    write_run(directory, run)
    (directory / "rows").mkdir()
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (directory / "rows" / "heldout.jsonl").write_text(lines)
    splits = {name: f"{name}.jsonl" for name in ("selection", "heldout")}
    spec = {**run.spec, "task": {"name": task, **splits}}
    (directory / "spec.json").write_text(json.dumps(spec))
    write_answers(
        directory,
        [
            AnswerRecord(
                candidate,
                "heldout",
                row,
                "p",
                "1",
                "c",
                ballot.votes[row],
                0.0,
                ballot.correct[row],
                1,
                truncated=False,
            )
            for candidate, ballot in ballots.items()
            for row in range(ROWS)
            if (candidate, row) not in left_out
        ],
    )
    return load_run(directory)


@pytest.fixture
def runs(make_run, tmp_path):
    """Write a run that reports all sizes and one that reports the largest; return both."""

    def make(seed=1, task="countdown", rows=None, left_out=lambda _run: ()):
        rows = rows or [{"numbers": [1, 2, 3], "target": row} for row in range(ROWS)]
        run = make_run(sizes=SIZES)
        ballots = ballots_of(run, seed)
        parsed = [get_task(task).parse(row) for row in rows]

        def metric(right):
            return get_task(task).metric(parsed, right)

        return tuple(
            written(
                tmp_path / name / "run",
                reporting(run, ballots, sizes, metric),
                ballots,
                parsed,
                task,
                left_out(run),
            )
            for name, sizes in (("all", SIZES), ("largest", SIZES[-1:]))
        )

    return make


@pytest.mark.parametrize("seed", range(3))
def test_added_ensembles_are_those_of_a_run_that_reports_them(runs, seed):
    whole, few = runs(seed)
    added = add_ensembles(few, SIZES[:-1])
    assert added.document == whole.document
    pd.testing.assert_frame_equal(added.vote_counts(), whole.vote_counts())
    for name, table in vars(tabulate_runs([whole])).items():
        pd.testing.assert_frame_equal(getattr(tabulate_runs([added]), name), table, obj=name)
    assert compare_runs([added]) == compare_runs([whole])


def test_the_metric_is_that_of_the_task(runs):
    rows = [{"rxn_smiles": "CCO>>CC=O", "class": 2 if row % 7 else 1} for row in range(ROWS)]
    whole, few = runs(task="uspto50k", rows=rows)
    entries = add_ensembles(few, [2]).document["ensembles"]
    expected = [each for each in whole.document["ensembles"] if each["ensemble_size"] in {2, 10}]
    assert entries == expected
    assert any(each["metric"] != each["correct"] / each["rows"] for each in entries)


def test_stored_rows_are_not_parsed_again(runs, monkeypatch):
    whole, few = runs()
    monkeypatch.setattr(type(get_task("countdown")), "parse", None)
    assert add_ensembles(few, SIZES[:-1]).document == whole.document


def test_reported_sizes_change_nothing(runs):
    whole, few = runs()
    assert add_ensembles(whole, SIZES) is whole
    assert add_ensembles(few, [10]) is few


@pytest.mark.parametrize("size", [-1, 0, 11])
def test_other_sizes_need_a_new_search(runs, size):
    _, few = runs()
    with error_at("experts", f"run has the answers of 10 experts and no vote of {size}"):
        add_ensembles(few, [2, size])


def test_a_skipped_row_leaves_the_votes_of_its_expert_unknown(runs):
    def left_out(run):
        largest = next(each for each in run.ensembles if each.ensemble_size == 10)
        return {(largest.experts[3], 7)}

    _, few = runs(left_out=left_out)
    with pytest.raises(PreconditionError, match="skipped 1 of 60 rows") as refused:
        add_ensembles(few, [5])
    assert refused.value.field == "experts"
