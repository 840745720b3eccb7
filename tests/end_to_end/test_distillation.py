"""Distillations through the front door: TRL and PEFT train the bundled model."""

import json
import random
import shutil
from functools import partial

import pytest
import yaml
from filelock import FileLock
from starlette.testclient import TestClient

from modnorm.analysis.run_folders import run_that_owns
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.web.app import build_app
from modnorm.web.run_directories import DirectoryCatalog
from verification.labs.waiting import wait_until

WORD_PROBLEMS = "bundled:word-problems-selection"
POINTS = ("search: ", "harvest: ", "training step", "evaluation: ")
"""Lines of progress at which the run is killed."""


@pytest.fixture(scope="module")
def spec_file(write_spec):
    return write_distillation(write_spec, "distilled", rounds=2)


def write_distillation(write_spec, name, rounds):
    return write_spec(
        name,
        task__selection={"source": WORD_PROBLEMS, "limit": 4},
        task__heldout={"source": "bundled:word-problems-heldout", "limit": 6},
        method={"name": "randopt", "radius": 0.02},
        population={"size": 3, "ensemble_sizes": [1, 2], "statistics": "full"},
        distillation={
            "rounds": rounds,
            "rows": {"source": WORD_PROBLEMS, "offset": 10, "limit": 16},
            "development": {"source": WORD_PROBLEMS, "offset": 4, "limit": 6},
            "harvest": {"samples": 2, "keep": 2},
            "training": {"rank": 4, "learning_rate": 0.001, "batch_size": 4, "epochs": 1},
        },
    )


@pytest.fixture(scope="module")
def distilled(modnorm, spec_file, shared):
    """Return the directory of a finished distillation."""
    out = shared / "distilled"
    with FileLock(shared / "distilled.lock"):
        if not (out / "distillation.json").exists():
            modnorm("run", spec_file, "--out", out)
    return out


def document_of(directory):
    return json.loads((directory / "distillation.json").read_text())


def content_of(directory):
    """Return the fields of each round that depend on its spec alone."""
    names = ("dataset", "student", "heldout", "development")
    return [{name: each[name] for name in names} for each in document_of(directory)["rounds"]]


def test_a_distillation_owns_all_files_of_its_directory(distilled):
    files = [path for path in distilled.rglob("*") if path.is_file()]
    assert all(run_that_owns(path) for path in files)


def test_two_rounds_train_two_students(distilled):
    document = document_of(distilled)
    base, first, second = document["rounds"]
    assert base["heldout"]["interval"] is not None
    assert base["student"] is None
    assert second["search"]["model"] == f"student:{first['student']}"
    assert first["student"] != second["student"]
    for entry in (first, second):
        assert entry["training"]["steps"] > 0
        assert entry["budget"]["training_flops"] > 0
        assert entry["harvest"]["answers"] == 2 * 2 * 16
        place = distilled / "rounds" / str(entry["round"])
        lines = (place / "dataset.jsonl").read_text().splitlines()
        assert len(lines) == entry["harvest"]["dataset_examples"]
        assert (place / "results.json").is_file()
    shown = [entry["development"]["metric"] for entry in (first, second)]
    assert document["best_round"] == 1 + shown.index(max(shown))


def test_the_best_student_is_exported_with_its_lineage(modnorm, distilled, tmp_path):
    model, adapter = tmp_path / "model", tmp_path / "adapter"
    exported = json.loads(modnorm("export", distilled, "--out", model, "--json").stdout)
    document = document_of(distilled)
    best = document["rounds"][document["best_round"]]
    assert exported["student"] == best["student"] == resolve_checkpoint(str(model)).digest
    card = (model / "README.md").read_text()
    assert best["dataset"] in card
    assert document["provenance"]["model_digest"] in card
    modnorm("export", distilled, "--adapters", "--round", "2", "--out", adapter)
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == resolve_checkpoint("tiny-thicket").location
    refused = modnorm("export", distilled, "--round", "3", "--out", tmp_path / "x", check=False)
    assert refused.returncode == 2
    assert "name one of 1, 2" in refused.stderr


def test_a_copy_of_a_distillation_is_printed_and_not_run_again(
    modnorm, spec_file, distilled, tmp_path
):
    copy = tmp_path / "copy"
    shutil.copytree(distilled, copy, ignore=shutil.ignore_patterns("state"))
    ran = modnorm("run", spec_file, "--out", copy)
    assert "nothing is run" in ran.stderr
    assert "student *" in ran.stdout
    assert not (copy / "state").exists()
    refused = modnorm("export", copy, "--out", tmp_path / "model", check=False)
    assert refused.returncode == 2
    assert "no longer holds student" in refused.stderr


def test_distillations_are_shown_and_compared(modnorm, distilled):
    shown = modnorm("show", distilled).stdout
    assert "student *" in shown
    assert "costs one model instead of 2" in shown
    assert 'href="rounds/2/report.html"' in (distilled / "report.html").read_text()
    assert (distilled / "rounds" / "2" / "report.html").is_file()
    beside = modnorm("compare", distilled, distilled / "rounds" / "1").stdout
    assert "rank 1 by selection" in beside
    (entry, search) = json.loads(
        modnorm("compare", distilled, distilled / "rounds" / "1", "--json").stdout
    )
    assert entry["student"]["metric"] is not None
    assert search["student"] is None
    # Three candidates and the base answer 4 selection rows; two experts and the base 6 others.
    assert search["answers"] == 4 * 4 + 3 * 6
    spent = document_of(distilled)["rounds"][1]["budget"]
    harvested = 2 * 2 * 16
    evaluated = 2 * 6
    assert spent["answers"] == search["answers"] + harvested + evaluated
    assert 0 < search["tokens"] < spent["tokens"] < entry["tokens"]


def test_the_page_shows_a_distillation_and_its_searches(distilled):
    catalog = DirectoryCatalog([distilled])
    page = TestClient(build_app(catalog), base_url="http://127.0.0.1")
    assert [run.name for run in catalog.runs(1).runs] == ["distilled", "1", "2"]
    student = document_of(distilled)["rounds"][2]["student"]
    assert student[:12] in page.get("/runs/distilled").text
    assert page.get("/runs/2").status_code == 200


def is_at(run, point, skipped):
    """Return whether a run has printed a line of a phase after a number of others, or ended."""
    return run.stderr.count(point) > skipped or run.has_ended()


def test_a_killed_distillation_ends_in_the_same_students(
    modnorm, start_command, spec_file, distilled, tmp_path
):
    """The process holds aggregator, evaluator and trainer, so a kill ends all three."""
    broken, order = tmp_path / "broken", random.Random(25)
    seen = 0
    for point in POINTS:
        run = start_command("run", spec_file, "--out", broken)
        skipped = order.randrange(2)
        wait_until(partial(is_at, run, point, skipped), point)
        seen += not run.has_ended()
        run.process.kill()
        run.finish()
    assert seen
    modnorm("run", spec_file, "--out", broken)
    assert content_of(broken) == content_of(distilled)


@pytest.mark.integration
def test_a_lab_of_processes_trains_the_student_of_an_embedded_run(
    lab, modnorm, write_spec, distilled, tmp_path
):
    spec_file = write_distillation(write_spec, "distilled in a lab", rounds=1)
    folders = {
        "MODNORM_STUDENT_DIR": str(tmp_path / "students"),
        "MODNORM_TRAIN_DIR": str(tmp_path / "trainings"),
    }
    fetched = {"MODNORM_STUDENT_DIR": str(tmp_path / "fetched-students")}
    with (
        lab.process("trainer", "127.0.0.1:0", **folders),
        lab.evaluator("one", **fetched),
    ):
        ended = modnorm("submit", spec_file, "--server", lab.server, "--json")
        distillation = json.loads(ended.stdout)["id"]
        modnorm("watch", distillation, "--server", lab.server)
    directory, model = tmp_path / "fetched", tmp_path / "model"
    modnorm("show", distillation, "--server", lab.server, "--out", directory)
    assert content_of(directory) == content_of(distilled)[:2]
    exported = modnorm("export", distillation, "--server", lab.server, "--out", model, "--json")
    assert json.loads(exported.stdout)["student"] == resolve_checkpoint(str(model)).digest


def test_a_held_out_row_in_the_training_rows_is_refused_by_content(
    modnorm, spec_file, distilled, tmp_path
):
    heldout = distilled / "rounds" / "1" / "rows" / "heldout.jsonl"
    copied, leaking = tmp_path / "innocent.jsonl", tmp_path / "leaking.yaml"
    copied.write_text(heldout.read_text().splitlines()[3] + "\n")
    spec = yaml.safe_load(spec_file.read_text())
    spec["distillation"]["rows"] = str(copied)
    leaking.write_text(yaml.safe_dump(spec))
    for command in (("validate", leaking), ("run", leaking, "--out", tmp_path / "run")):
        refused = modnorm(*command, check=False)
        assert refused.returncode == 2
        assert "distillation.rows" in refused.stderr
        assert "task.heldout" in refused.stderr
