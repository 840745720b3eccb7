"""A small dataset, a small model, and jobs that train on it."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.spec import TrainingSpec
from modnorm.tasks import get_task
from modnorm.training import TrainingJob
from tests.random_models import random_model

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
def model(tmp_path_factory) -> str:
    """The directory of a random model of two layers, with the tokenizer of the bundled one."""
    bundled = resolve_checkpoint("tiny-thicket")
    torch.manual_seed(5)
    made = random_model(
        "qwen2",
        vocab_size=bundled.config["vocab_size"],
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=bundled.max_position,
        tie_word_embeddings=True,
        eos_token_id=bundled.config["eos_token_id"],
    ).bfloat16()
    folder = tmp_path_factory.mktemp("model")
    made.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(bundled.directory / name, folder / name)
    return str(folder)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("dataset") / "examples.jsonl")


@pytest.fixture
def make_job(model, dataset, tmp_path):
    def make(name: str = "job", training: TrainingSpec = SHORT, **changes) -> TrainingJob:
        content = {
            "model": model,
            "dataset": dataset,
            "training": training,
            "seed": 3,
            "directory": tmp_path / name,
            "device": "cpu",
        }
        return TrainingJob(**{**content, **changes})

    return make
