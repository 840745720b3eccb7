import json
from pathlib import Path

import pytest

from modnorm.suites import load_suite
from modnorm.v1 import experiment_pb2 as experiments
from tests.small_results import small_results

EXAMPLES = Path(__file__).parents[2] / "examples"
PAPER = EXAMPLES / "paper" / "ablations.yaml"


def test_a_plan_counts_what_would_run(printed, modnorm_json):
    plan = modnorm_json("suite", "plan", PAPER)
    assert (plan["experiments"], plan["candidates"]) == (24, 2_400)
    assert plan["search"] == 24 * 100 * 200
    assert plan["final_at_most"] == 24 * 25 * 500
    one = modnorm_json("suite", "plan", PAPER, "--only", "seed=42")
    assert one["experiments"] == 8
    assert "60,000" in printed("suite", "plan", PAPER, "--only", "variant=Full (ours)")


def test_a_suite_that_was_not_run_has_a_table_all_the_same(printed, modnorm_json, tmp_path):
    (table,) = modnorm_json("suite", "table", PAPER, "--out", tmp_path)
    assert table["missing"] == 9
    out = printed("suite", "table", PAPER, "--out", tmp_path)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert {"| Full (ours) | paper | 37.80 ± 0.87 |", "| | ours | not run |"} <= set(lines)


def test_status_lists_cells_by_state(printed, modnorm_json, tmp_path):
    found = modnorm_json("suite", "status", PAPER, "--out", tmp_path)
    assert found["states"] == {"waiting": 24}
    out = printed("suite", "status", PAPER, "--out", tmp_path, "--only", "seed=43")
    assert "mlp-only_43" in out
    assert out.splitlines()[-1] == "paper-ablations: 8 waiting"


def test_settings_of_a_run_are_those_of_its_tables(modnorm_json, tmp_path):
    settings = [{"method": {"radius": 0.5}}]
    journal = {"schema": "modnorm-suite-1", "suite": "paper-ablations", "settings": settings}
    (tmp_path / "suite.json").write_text(json.dumps(journal))
    cell = tmp_path / "frobenius-norm_42"
    cell.mkdir()
    by_id = {each.id: each for each in load_suite(PAPER, settings).cells}
    spec = by_id[cell.name].spec.model_dump(mode="json")
    results = small_results(spec, population=100, ensemble_size=25, metric=0.25)
    (cell / "results.json").write_text(json.dumps(results))
    timings = {"scope": {"search": 1.0, "end_to_end": 2.0, "workers": 1}}
    (cell / "timings.json").write_text(json.dumps(timings))
    (table,) = modnorm_json("suite", "table", PAPER, "--out", tmp_path)
    found = {row["labels"][0]: row["figures"][0] for row in table["rows"]}
    assert found["Frobenius norm"]["by_seed"] == {"42": 25.0}
    assert found["Pretrained base"]["by_seed"] == {"42": 50.0}


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["--only", "colour=red"], "only"),
        (["--only", "variant"], "only"),
        (["--only", "seed=7"], "only"),
        (["--set", "engine"], "set"),
        (["--set", "method.radius=-1"], f"{PAPER}: cell Full (ours) / 42"),
    ],
)
def test_faults_are_the_callers(refusal, arguments, place):
    err = refusal("suite", "plan", PAPER, *arguments)
    assert err.startswith(f"error: {place}: ")


M = {"method": {"name": "modular_norm", "radius": 0.2}}
RANDOPT = {"method": {"name": "randopt", "sigma": 0.01}}
ONE_CELL = {
    "name": "one",
    "title": "One",
    "base": {
        "model": "tiny-thicket",
        "task": {
            "name": "countdown",
            "selection": "bundled:countdown-selection",
            "heldout": "bundled:countdown-heldout",
        },
        "population": {"size": 2},
    },
    "axes": {"method": {"M": M}},
    "seeds": [1],
}
OTHER = {"name": "randopt", "sigma": {"artifact": "absent.json"}}
"""A method whose radius has not been chosen yet."""


@pytest.fixture
def write_suite(tmp_path):
    """Write a suite of one cell with other fields; returns its file."""

    def write(**changes):
        (tmp_path / "suite.yaml").write_text(json.dumps({**ONE_CELL, **changes}))
        return tmp_path / "suite.yaml"

    return write


@pytest.mark.parametrize("other", [OTHER, {"name": "randopt", "sigma": -1}])
def test_a_fault_of_a_cell_that_is_not_chosen_stops_no_command(
    refusal, modnorm_json, write_suite, tmp_path, other
):
    file = write_suite(axes={"method": {"M": M, "Other": {"method": other}}})
    out = tmp_path / "out"
    for words in (("plan",), ("plan", "--only", "method=Other"), ("status", "--out", out)):
        err = refusal("suite", words[0], file, *words[1:])
        assert "cell Other / 1: method.radius: " in err or "cell Other / 1: method.sigma: " in err
    assert modnorm_json("suite", "plan", file, "--only", "method=M")["experiments"] == 1
    told = modnorm_json("suite", "status", file, "--out", out, "--only", "method=M")
    assert [each["cell"] for each in told["cells"]] == ["m_1"]


@pytest.mark.parametrize(
    ("excluded", "fault"),
    [
        ([], "cell M / puzzles / 1: method.radius: "),
        ([{"method": "M", "task": "puzzles"}], "profiles.from: no cell calibrates"),
    ],
)
def test_a_fault_of_a_profile_stops_only_cells_that_use_it(
    refusal, modnorm_json, write_suite, excluded, fault
):
    place = {"method": "M", "task": "puzzles"}
    file = write_suite(
        axes={"method": {"M": M, "Other": RANDOPT}, "task": {"puzzles": {}, "more": {}}},
        profiles={"axis": "task", "from": "puzzles"},
        exclude=excluded,
        overrides=[{"where": place, "set": {"method": {"radius": -1}}}],
    )
    assert fault in refusal("suite", "plan", file, "--only", "method=M", "--only", "task=more")
    assert modnorm_json("suite", "plan", file, "--only", "method=Other")["experiments"] == 2


def test_a_plan_names_the_cell_whose_rows_it_cannot_find(refusal, write_suite):
    file = write_suite()
    file.write_text(file.read_text().replace("bundled:countdown-heldout", "split:x/y"))
    err = refusal("suite", "plan", file)
    assert err.startswith(f"error: {file}: cell M / 1: task.heldout.source: there is no split")


@pytest.mark.parametrize(
    ("option", "fault"),
    [
        ({"method": {"name": "randop", "radius": 0.01}}, "method.name: "),
        ({"task": {"heldout": "bundled:countdown-selection"}}, "task.heldout: "),
    ],
)
def test_a_fault_on_every_machine_is_refused_before_any_cell_runs(
    refusal, modnorm_json, write_suite, tmp_path, option, fault
):
    file, out = write_suite(axes={"method": {"M": M, "Bad": M | option}}), tmp_path / "out"
    for words in (("plan", file), ("run", file, "--out", out)):
        assert refusal("suite", *words).startswith(f"error: {file}: cell Bad / 1: {fault}")
    assert not out.exists()
    assert modnorm_json("suite", "plan", file, "--only", "method=M")["experiments"] == 1


def test_a_table_without_cells_is_refused_before_any_cell_runs(refusal, write_suite, tmp_path):
    place = {"method": "M", "N": 2, "K": 1}
    pair = {"label": "x", "of": place, "against": {**place, "method": "Other"}}
    table = {"kind": "difference", "title": "t", "ensemble_sizes": [1], "compare": [pair]}
    axes = {"method": {"M": M, "Other": RANDOPT}}
    file = write_suite(axes=axes, tables=[table], exclude=[{"method": "Other"}])
    out = tmp_path / "out"
    err = refusal("suite", "run", file, "--out", out)
    assert err.startswith(f"error: {file}:")
    assert " tables.0: " in err
    assert err.endswith("selects no ensemble\n")
    assert not out.exists()


WAITED_FOR = "the calibrator [it is away]"


def test_what_a_cell_waits_for_is_told_once_while_it_does(
    modnorm, serve, servicer, write_suite, tmp_path, monkeypatch
):
    monkeypatch.setattr("modnorm.suites.runner.FIRST_PAUSE", 0.001)
    looks = [WAITED_FOR, WAITED_FOR, ""]
    during = []

    def get(request, context):
        found = experiments.Experiment(id="e1", state=experiments.EXPERIMENT_STATE_CALIBRATING)
        if looks:
            found.waits_for = looks.pop(0)
        else:
            during.append(json.loads((tmp_path / "out" / "suite.json").read_text())["cells"])
            found.state = experiments.EXPERIMENT_STATE_CANCELLED
        return experiments.GetExperimentResponse(experiment=found)

    created = experiments.Experiment(id="e1", state=experiments.EXPERIMENT_STATE_PENDING)
    target = serve(
        servicer(
            CreateExperiment=lambda *_: experiments.CreateExperimentResponse(experiment=created),
            GetExperiment=get,
        )
    )
    file = write_suite()
    code, _, err = modnorm("suite", "run", file, "--server", target, "--out", tmp_path / "out")
    assert code == 1
    (cell,) = during[0]
    assert err.splitlines() == [
        f"{cell}: submitted",
        f"{cell}: calibrating, waiting: {WAITED_FOR}",
        f"{cell}: failed it was cancelled",
    ]
    journal = tmp_path / "out" / "suite.json"
    record = {**during[0][cell], "waits_for": WAITED_FOR}
    journal.write_text(json.dumps({**json.loads(journal.read_text()), "cells": {cell: record}}))
    _, out, _ = modnorm("suite", "status", file, "--out", tmp_path / "out")
    assert f"waiting: {WAITED_FOR}" in out


def test_a_cell_that_trains_shows_its_updates(
    modnorm, serve, servicer, write_suite, tmp_path, monkeypatch
):
    monkeypatch.setattr("modnorm.suites.runner.FIRST_PAUSE", 0.001)
    selecting = experiments.Experiment(
        id="e1",
        state=experiments.EXPERIMENT_STATE_SELECTING,
        progress=experiments.Progress(jobs_done=3, jobs_total=31, updates_done=2, updates_total=8),
    )
    cancelled = experiments.Experiment(id="e1", state=experiments.EXPERIMENT_STATE_CANCELLED)
    looks = [selecting, cancelled]
    target = serve(
        servicer(
            CreateExperiment=lambda *_: experiments.CreateExperimentResponse(experiment=selecting),
            GetExperiment=lambda *_: experiments.GetExperimentResponse(experiment=looks.pop(0)),
        )
    )
    out = tmp_path / "out"
    _, _, err = modnorm("suite", "run", write_suite(), "--server", target, "--out", out)
    assert "selecting, 2/8" in err


def test_remarks_on_results_name_their_cell(
    modnorm, serve, servicer, write_suite, tmp_path, monkeypatch
):
    monkeypatch.setattr("modnorm.suites.runner.FIRST_PAUSE", 0.001)
    ended = experiments.Experiment(id="e1", state=experiments.EXPERIMENT_STATE_SUCCEEDED)
    target = serve(
        servicer(
            CreateExperiment=lambda *_: experiments.CreateExperimentResponse(experiment=ended),
            GetExperiment=lambda *_: experiments.GetExperimentResponse(experiment=ended),
        )
    )
    file, out = write_suite(), tmp_path / "out"
    (cell,) = load_suite(file).cells

    def save(_client, _id, directory):
        results = {**small_results(cell.spec.model_dump(mode="json")), "overlap": 2}
        (directory / "results.json").write_text(json.dumps(results))

    monkeypatch.setattr("modnorm.client.fetching.save_run", save)
    _, _, err = modnorm("suite", "run", file, "--server", target, "--out", out)
    assert f"note: {cell.id}: 2 of 4 held-out rows have the prompts of selection rows" in err


def test_a_suite_does_not_run_inside_the_directory_of_a_run(refusal, claim, write_suite, tmp_path):
    run = claim(tmp_path / "run")
    err = refusal("suite", "run", write_suite(), "--out", run)
    assert err.startswith(f"error: out: {run} holds the run of a single spec (")
    assert [path.name for path in run.iterdir()] == ["spec.json"]


def test_a_file_that_is_no_suite_is_named_with_the_remedy(refusal, tmp_path):
    absent = tmp_path / "absent.yaml"
    err = refusal("suite", "plan", absent)
    assert err == f"error: suite: cannot read {absent}: No such file or directory\n"
    err = refusal("suite", "run", EXAMPLES / "demo-randopt.yaml")
    assert "is the spec of one experiment, not a suite (run it with `modnorm run`, " in err
