"""Suites of distillations: tables of rounds, and cells whose directories hold rounds."""

import json
from dataclasses import replace

import grpc
import pytest

from modnorm.cli.suite import _run_cells
from modnorm.errors import InvalidInputError
from modnorm.suites.cost_estimate import estimate_cost, plan_cells
from modnorm.suites.outcomes import profile_digest, read_suite
from modnorm.suites.runner import suite_status
from tests.analysis.distillations import make_document
from verification.labs.bundled_tasks import bundled_task

DISTILLED = {
    "model": "tiny-thicket",
    "task": bundled_task("countdown", selection=10, heldout=10),
    "population": {"size": 4, "ensemble_sizes": [1, 2]},
    "distillation": {
        "rounds": 2,
        "rows": "training.jsonl",
        "development": "bundled:countdown-development",
    },
}
AXES = {
    "method": {
        "RandOpt": {"method": {"name": "randopt", "sigma": 0.01}},
        "MN": {"method": {"name": "modular_norm", "radius": 0.2}},
    }
}
TABLE = {"kind": "rounds", "title": "t", "rows": ["method"]}


@pytest.fixture
def loaded(load):
    return load(base=DISTILLED, axes=AXES, tables=[TABLE])


@pytest.fixture
def distil(finish, tmp_path):
    """Write a finished distillation of a cell."""

    def make(cell, base, votes, students, **changes):
        first = replace(cell, id=f"{cell.id}/rounds/1")
        finish(first, rewards=(0.1, 0.2, 0.3, 0.4), metrics={(4, 2): 0.75}, profile="p")
        spec = {**cell.spec.model_dump(mode="json"), **changes}
        document = {**make_document(base, votes, students), "spec": spec}
        (tmp_path / "out" / cell.id / "distillation.json").write_text(json.dumps(document))

    return make


def test_rows_have_base_search_students_and_the_gain_kept(loaded, distil, tables):
    randopt, other, *_ = (cell for cell in loaded.cells if cell.labels["method"] == "RandOpt")
    distil(randopt, 0.2, [0.6, 0.7], [0.5, 0.65])
    distil(other, 0.2, [0.7, 0.7], [0.45, 0.5])
    table = tables(loaded)[0]
    headings = ("base", "rank 1", "vote", "student 1", "student 2", "best student", "gain kept")
    assert table.columns == headings
    (label, first), (_, second) = table.by_labels.items()
    assert label == ("RandOpt",)
    values = {name: each.by_seed for name, each in first.items()}
    seeds = {randopt.seed: 65.0, other.seed: 50.0}
    assert values["student 2"] == pytest.approx(seeds)
    assert values["vote"] == pytest.approx({randopt.seed: 60.0, other.seed: 70.0})
    assert values["best student"] == values["student 1"]
    assert values["gain kept"] == pytest.approx({randopt.seed: 75.0, other.seed: 50.0})
    assert all(not each.by_seed and each.seeds for each in second.values())


def test_other_tables_read_the_first_search(load, distil, tables, tmp_path):
    metric = {"kind": "metric", "title": "m", "rows": ["method"], "columns": ["K"]}
    loaded = load(base=DISTILLED, axes=AXES, tables=[TABLE, metric])
    cell = loaded.cells[0]
    distil(cell, 0.2, [0.6, 0.7], [0.5, 0.65])
    figure = tables(loaded)[1].rows[0].figures[1]
    assert figure.by_seed == {cell.seed: 75.0}
    assert profile_digest(read_suite(loaded, tmp_path / "out").runs[cell.id]) == "p"


def test_a_distillation_uses_no_profile_of_another_cell(load):
    tasks = {
        name: {"task": bundled_task("countdown", selection=10, heldout=rows)}
        for name, rows in (("puzzles", 10), ("more", 20))
    }
    profiles = {"axis": "task", "from": "puzzles"}
    loaded = load(base=DISTILLED, axes={**AXES, "task": tasks}, profiles=profiles)
    assert {cell.profile_of for cell in loaded.cells} == {None}


@pytest.mark.parametrize(("profile", "reason"), [("p", "enough"), ("", "fix that cell first")])
def test_a_lab_searches_with_the_profile_of_a_distillation(
    load, distil, serve, servicer, monkeypatch, tmp_path, profile, reason
):
    distilled = {"distillation": DISTILLED["distillation"]}
    tasks = {
        name: {"task": bundled_task("countdown", selection=10, heldout=rows), **more}
        for name, rows, more in (("puzzles", 10, distilled), ("more", 20, {}))
    }
    base = {name: DISTILLED[name] for name in ("model", "population")}
    axes = {"method": {"MN": AXES["method"]["MN"]}, "task": tasks}
    loaded = load(base=base, axes=axes, seeds=[42], profiles={"axis": "task", "from": "puzzles"})
    origin, other = loaded.cells
    profiles = []

    def create(request, context):
        profiles.append(request.spec.method.profile)
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "enough")

    def run_distillation(*_, **__):
        if not profile:
            raise InvalidInputError("no rows")
        distil(origin, 0.2, [0.6, 0.7], [0.5, 0.65])

    monkeypatch.setattr("modnorm.cli.run.run_distillation", run_distillation)
    (out := tmp_path / "out").mkdir()
    server = serve(servicer(CreateExperiment=create))
    assert not _run_cells(loaded, loaded.cells, out, server, None)
    assert profiles == [profile] * bool(profile)
    assert reason in suite_status(loaded.suite.name, [other], out)[other.id].error


def test_a_table_of_rounds_needs_distillations(load, tables):
    loaded = load(tables=[TABLE | {"rows": ["method", "task"]}])
    with pytest.raises(InvalidInputError, match="no distillation") as refused:
        tables(loaded)[0]
    assert "section `distillation`" in (refused.value.remedy or "")


def test_a_vote_without_a_gain_leaves_no_share(loaded, distil, tables):
    cell = loaded.cells[0]
    distil(cell, 0.6, [0.5, 0.5], [0.6, 0.6])
    table = tables(loaded)[0]
    first = table.by_labels["RandOpt",]
    share = first["gain kept"]
    assert (share.by_seed, share.seeds) == ({}, len(loaded.cells) // 2 - 1)
    assert first["vote"].by_seed == {cell.seed: 50.0}


@pytest.fixture
def training_rows(tmp_path, monkeypatch):
    """Twelve training rows where the spec names them."""
    monkeypatch.chdir(tmp_path)
    row = json.dumps({"numbers": [3, 5, 7], "target": 15})
    (tmp_path / "training.jsonl").write_text(f"{row}\n" * 12)


@pytest.mark.usefixtures("training_rows")
def test_a_plan_counts_every_round(loaded):
    cell = loaded.cells[0]
    (plan,) = plan_cells([cell]).values()
    # Two rounds of 4 candidates, and 2 experts that answer 12 rows 16 times.
    assert plan.candidates == 8
    assert plan.search == 2 * (4 * 10 + 12 * 2 * 16)
    assert estimate_cost(cell.spec).jobs == 2 * (4 + 2 + 2 + 2 * 16) + 3 * 2


def test_a_plan_counts_the_candidates_of_every_round_without_the_training_rows(
    loaded, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    cell = loaded.cells[0]
    (plan,) = plan_cells([cell]).values()
    assert (plan.candidates, plan.search) == (8, None)
