"""A distillation in a lab of separate processes, by the commands of its clients."""

import json

import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.tasks.puzzles import main as write_puzzles

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def spec_file(write_spec, tmp_path_factory):
    rows = tmp_path_factory.mktemp("rows") / "training.jsonl"
    write_puzzles([str(rows), "--seed", "5", "--count", "12"])
    task = {
        "name": "countdown",
        "selection": {"source": "bundled:countdown-selection", "limit": 4},
        "heldout": {"source": "bundled:countdown-heldout", "limit": 4},
        "max_tokens": 64,
    }
    return write_spec(
        "distilled in a lab",
        task=task,
        method={"name": "randopt", "radius": 0.006},
        population={"size": 3, "ensemble_sizes": [1, 2]},
        distillation={
            "rounds": 1,
            "rows": str(rows),
            "development": {"source": "bundled:countdown-development", "limit": 4},
            "harvest": {"samples": 2, "keep": 2},
            "training": {
                "rank": 4,
                "learning_rate": 0.001,
                "batch_size": 2,
                "epochs": 8,
                "checkpoint_steps": 2,
            },
        },
    )


def rounds_of(directory):
    return json.loads((directory / "distillation.json").read_text())["rounds"]


def test_a_lab_of_processes_trains_the_student_of_an_embedded_run(
    lab, client, modnorm, spec_file, tmp_path
):
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
    directory, embedded = tmp_path / "fetched", tmp_path / "embedded"
    modnorm("show", distillation, "--server", lab.server, "--out", directory)
    modnorm("run", spec_file, "--out", embedded)
    for name in ("dataset", "student", "development", "heldout"):
        pairs = zip(rounds_of(embedded), rounds_of(directory), strict=True)
        assert all(one[name] == other[name] for one, other in pairs), name
    model = tmp_path / "model"
    exported = modnorm("export", distillation, "--server", lab.server, "--out", model, "--json")
    assert json.loads(exported.stdout)["student"] == resolve_checkpoint(str(model)).digest
