"""Rows that a distillation may not share, compared by content."""

import json
import math
import shutil

import pytest

from modnorm.errors import InvalidInputError
from modnorm.spec import parse_spec
from modnorm.spec_checks import check_locally, load_splits
from modnorm.tasks.countdown import Countdown
from tests.faults import error_at

SPLITS = ("selection", "heldout", "development", "training")
FIELDS = {
    "selection": "task.selection",
    "heldout": "task.heldout",
    "development": "distillation.development",
    "training": "distillation.rows",
}


@pytest.fixture
def files(tmp_path):
    """Write four files of different puzzles; return them by split."""
    made = {}
    for number, split in enumerate(SPLITS):
        rows = [{"numbers": [number + 1, row + 2, 30], "target": 40} for row in range(3)]
        made[split] = tmp_path / f"{split}.jsonl"
        made[split].write_text("".join(json.dumps(row) + "\n" for row in rows))
    return made


@pytest.fixture
def load(files):
    """Return a function that loads the splits, as admission does."""

    def call():
        spec = parse_spec(
            {
                "model": "tiny-thicket",
                "task": {
                    "name": "countdown",
                    "selection": str(files["selection"]),
                    "heldout": str(files["heldout"]),
                },
                "method": {"name": "randopt", "sigma": 0.006},
                "population": {"size": 2},
                "distillation": {
                    "rows": str(files["training"]),
                    "development": str(files["development"]),
                },
            }
        )
        check_locally(spec, folders=(), engines=("auto",))
        return load_splits(spec, roots=None, folders=())

    return call


def test_different_rows_are_accepted(load):
    splits = load()
    assert splits.training is not None
    assert len(splits.training.rows) == 3


@pytest.mark.parametrize(
    ("copied", "into"),
    [
        ("selection", "training"),
        ("heldout", "training"),
        ("development", "training"),
        ("selection", "development"),
        ("heldout", "development"),
    ],
)
def test_one_copied_row_is_refused_wherever_it_is(files, load, copied, into):
    second = files[copied].read_text().splitlines()[1]
    with files[into].open("a") as file:
        file.write(json.dumps({**json.loads(second), "solution": "of no interest"}) + "\n")
    with error_at(FIELDS[into]) as refused:
        load()
    assert FIELDS[copied] in refused.value.message
    assert "line 4" in refused.value.message
    assert "line 2" in refused.value.message


def test_rows_of_the_hub_switch_no_other_comparison_off(files, load, monkeypatch):
    files["heldout"] = "org/set"
    files["training"].write_text(files["selection"].read_text())
    monkeypatch.setattr("modnorm.spec_checks.check_dataset", lambda *_, **__: None)
    with error_at("distillation.rows", "shares 3 of 3 prompts with task.selection"):
        load()


def test_a_whole_file_under_another_name_is_refused(files, load, tmp_path):
    files["training"] = tmp_path / "other" / "innocent.jsonl"
    files["training"].parent.mkdir()
    shutil.copy(files["heldout"], files["training"])
    with pytest.raises(InvalidInputError, match=r"shares 3 of . prompts with"):
        load()


def test_a_metric_that_fails_is_refused_before_the_search(load, monkeypatch):
    monkeypatch.setattr(Countdown, "metric", lambda *_: math.nan)
    with error_at("task.name", "0 of them right, returned nan"):
        load()
