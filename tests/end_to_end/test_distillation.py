"""Distillations through the front door: TRL and PEFT train the bundled model."""

import json
import random
from functools import partial

import pytest
import yaml
from filelock import FileLock

from modnorm.analysis.run_files import run_that_owns
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.training import child_process
from verification.labs.waiting import wait_until

WORD_PROBLEMS = "bundled:word-problems-selection"


@pytest.fixture(scope="module")
def start_command(start_module, forks, environment):
    """Start the command line, whose trainings are forks: importing TRL takes longer than both."""
    training = {"TEST_TRAINING_COMMAND": json.dumps(forks.command(child_process.MODULE))}
    return partial(start_module, "tests.forked_trainings", environment=environment | training)


@pytest.fixture(scope="module")
def modnorm(start_command):
    def run(*arguments, check=True):
        ended = start_command(*arguments).finish()
        if check:
            assert ended.returncode == 0, ended.stderr
        return ended

    return run


@pytest.fixture(scope="module")
def spec_file(write_spec):
    return write_spec(
        "distilled",
        task__selection={"source": WORD_PROBLEMS, "limit": 4},
        task__heldout={"source": "bundled:word-problems-heldout", "limit": 6},
        method={"name": "randopt", "radius": 0.02},
        population={"size": 3, "ensemble_sizes": [1, 2]},
        distillation={
            "rounds": 2,
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
            modnorm("distil", spec_file, "--out", out)
    return out


def document_of(directory):
    return json.loads((directory / "distillation.json").read_text())


def content_of(directory):
    """Return the fields of each round that depend on its spec alone."""
    names = ("search", "harvest", "dataset", "student", "heldout", "development")
    return [{name: each[name] for name in names} for each in document_of(directory)["rounds"]]


def test_two_rounds_train_two_students(distilled):
    document = document_of(distilled)
    base, first, second = document["rounds"]
    assert base["heldout"]["interval"] is not None
    assert base["student"] is None
    assert second["search"]["model"] == "student of round 1"
    assert first["student"] != second["student"]
    for entry in (first, second):
        place = distilled / "rounds" / str(entry["round"])
        student = resolve_checkpoint(str(place / "training" / "student"))
        assert student.digest == entry["student"]
        assert (student.directory / "adapter" / "adapter_config.json").is_file()
        assert entry["training"]["steps"] > 0
        assert entry["budget"]["training_flops"] > 0
        assert entry["harvest"]["answers"] == 2 * 2 * 16
        lines = (place / "dataset.jsonl").read_text().splitlines()
        assert len(lines) == entry["harvest"]["dataset_examples"]
    shown = [entry["development"]["metric"] for entry in (first, second)]
    assert document["best_round"] == 1 + shown.index(max(shown))
    assert all(run_that_owns(path) for path in distilled.rglob("*") if path.is_file())


def test_a_distillation_is_shown_and_its_searches_are_compared(modnorm, distilled):
    shown = modnorm("show", distilled).stdout
    assert "student *" in shown
    assert "costs one model instead of 2" in shown
    assert 'href="rounds/2/report.html"' in (distilled / "report.html").read_text()
    compared = modnorm("compare", distilled, "--json")
    assert [each["run"] for each in json.loads(compared.stdout)] == ["1", "2"]
    assert f"{distilled} is left out: it is a distillation" in compared.stderr
    # Three candidates and the base answer 4 selection rows; two experts and the base 6 others.
    searched, harvested, evaluated = 4 * 4 + 3 * 6, 2 * 2 * 16, 2 * 6
    spent = document_of(distilled)["rounds"][1]["budget"]
    assert spent["answers"] == searched + harvested + evaluated


def is_at(run, stage):
    """Return whether a run has begun a stage, or ended."""
    return stage in run.stderr or run.has_ended()


@pytest.mark.integration
def test_a_killed_distillation_that_searches_in_a_lab_ends_in_the_same_students(
    lab, modnorm, start_command, spec_file, distilled, tmp_path
):
    broken, order = tmp_path / "broken", random.Random(25)
    stages = ["round 1: search", "round 1: harvest", "round 1: training", "round 2: evaluation"]
    command = ("distil", spec_file, "--server", lab.server, "--out", broken)
    with lab.evaluator("one"):
        run = start_command(*command)
        wait_until(partial(is_at, run, stage := order.choice(stages)), stage)
        run.process.kill()
        run.finish()
        assert not (broken / "distillation.json").exists()
        ended = modnorm(*command)
    assert content_of(broken) == content_of(distilled)
    for number in ("1", "2"):
        files = [each / "rounds" / number / "dataset.jsonl" for each in (broken, distilled)]
        assert files[0].read_bytes() == files[1].read_bytes()
    assert f"{stages[0]}\n" not in ended.stderr or stage == stages[0]
    again = modnorm(*command)
    assert "round 1" not in again.stderr
    assert again.stdout == ended.stdout


def test_a_held_out_row_in_the_training_rows_is_refused_by_content(
    modnorm, spec_file, distilled, tmp_path
):
    heldout = distilled / "rounds" / "1" / "rows" / "heldout.jsonl"
    copied, leaking = tmp_path / "innocent.jsonl", tmp_path / "leaking.yaml"
    copied.write_text(heldout.read_text().splitlines()[3] + "\n")
    spec = yaml.safe_load(spec_file.read_text())
    spec["distillation"]["rows"] = str(copied)
    leaking.write_text(yaml.safe_dump(spec))
    for command in (("validate", leaking), ("distil", leaking, "--out", tmp_path / "run")):
        refused = modnorm(*command, check=False)
        assert refused.returncode == 2
        assert "distillation.rows" in refused.stderr
        assert "task.heldout" in refused.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "training", "field"),
    [(4000, {}, "rows"), (40, {"max_length": 32}, "training.max_length")],
)
def test_training_rows_that_are_too_long_are_refused_before_the_search(
    modnorm, spec_file, tmp_path, words, training, field
):
    rows, changed = tmp_path / "long.jsonl", tmp_path / "long.yaml"
    rows.write_text(json.dumps({"question": "many " * words, "answer": "1"}) + "\n")
    spec = yaml.safe_load(spec_file.read_text())
    spec["distillation"] |= {"rows": str(rows), "training": training}
    changed.write_text(yaml.safe_dump(spec))
    refused = modnorm("distil", changed, "--out", tmp_path / "run", check=False)
    assert refused.returncode == 2
    assert f"error: distillation.{field}: " in refused.stderr
    assert not (tmp_path / "run" / "rounds").exists()
