"""A small dataset of the bundled model, and jobs that train on it."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from modnorm.spec import TrainingSpec
from modnorm.tasks import get_task
from modnorm.training import TrainingJob

ROWS = Path("modnorm/bundled/data/countdown-selection.jsonl")
SHORT = TrainingSpec(rank=4, batch_size=4, epochs=2, checkpoint_steps=2, learning_rate=1e-3)
"""Six steps of four examples."""


def write_dataset(path: Path, count: int = 12) -> Path:
    task = get_task("countdown")
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()[:count]]
    lines = [
        {
            "prompt": [asdict(message) for message in task.messages(task.parse(row))],
            "completion": [
                {"role": "assistant", "content": f"<answer>{row['solution']}</answer>"}
            ],
            "row": number,
        }
        for number, row in enumerate(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="session")
def dataset(tmp_path_factory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("dataset") / "examples.jsonl")


@pytest.fixture
def make_job(dataset, tmp_path):
    def make(name: str = "job", training: TrainingSpec = SHORT, **changes) -> TrainingJob:
        content = {
            "model": "tiny-thicket",
            "dataset": dataset,
            "training": training,
            "seed": 3,
            "directory": tmp_path / name,
            "device": "cpu",
        }
        return TrainingJob(**{**content, **changes})

    return make
