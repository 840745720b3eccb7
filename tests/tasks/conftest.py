import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.parquet import write_table

from modnorm.sandbox import Sandbox
from modnorm.tasks import Task, catalogue, get_task
from modnorm.tasks.catalogue import Dataset, Part, Split
from modnorm.tasks.columns import rows_digest
from modnorm.tasks.splits import shuffled

ROWS = [{"numbers": [n, 2, 3], "target": n + 5, "note": "x"} for n in range(1, 6)]


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[[str], Path]:
    """Write the five ROWS in the format of a file name."""

    def write(name: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".jsonl":
            path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
        elif path.suffix == ".json":
            path.write_text(json.dumps(ROWS))
        else:
            write_table(pa.Table.from_pylist(ROWS), path)
        return path

    return write


@pytest.fixture(scope="session")
def make_task() -> Iterator[Callable[[str, str | None], Task]]:
    """Make a task by name and scorer, with a sandbox."""
    with Sandbox() as sandbox:

        def make(name: str, scorer: str | None = None) -> Task:
            return get_task(name, scorer=scorer, sandbox=sandbox)

        yield make


PUZZLES: list[dict[str, object]] = [
    {"id": n, "numbers": [n, 1], "target": str(n + 1)} for n in range(20)
]
QUESTIONS: list[dict[str, object]] = [
    {"question": f"q{n}?", "answer": f"so\n#### {n}", "level": "easy"} for n in range(6)
]


@pytest.fixture
def puzzles() -> list[dict[str, object]]:
    """Rows of the small Countdown data set, before the shuffle."""
    return [dict(row) for row in PUZZLES]


@pytest.fixture
def questions() -> list[dict[str, object]]:
    """Rows of the small GSM8K data set: two to select with, four held out."""
    return [dict(row) for row in QUESTIONS]


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put small data sets into the catalogue: one by address, one not public."""
    small = {"countdown": _countdown(), "gsm8k": _gsm8k()}
    monkeypatch.setattr(catalogue, "DATASETS", small)


@pytest.fixture
def folder(tmp_path: Path, data: None) -> Path:
    """Write the data sets' own files into a folder."""
    (tmp_path / "countdown").mkdir()
    (tmp_path / "countdown" / "countdown.json").write_text(json.dumps(PUZZLES))
    (tmp_path / "gsm8k").mkdir()
    lines = [f"{json.dumps(row)}\n" for row in QUESTIONS]
    (tmp_path / "gsm8k" / "train.jsonl").write_text("".join(lines[:2]))
    (tmp_path / "gsm8k" / "test.jsonl").write_text("".join(lines[2:]))
    return tmp_path


def _countdown() -> Dataset:
    order = shuffled(PUZZLES)
    cut = {"selection": order[:5], "heldout": order[5:]}
    return Dataset(
        task="countdown",
        licence="none",
        url="https://example.org/countdown.json",
        sha256=hashlib.sha256(json.dumps(PUZZLES).encode()).hexdigest(),
        shuffled=True,
        splits={
            name: Split(
                rows=len(rows),
                digest=_digest("countdown", rows),
                parts=(Part("countdown", 0 if name == "selection" else 5),),
                rule="a rule",
                file_sha256=hashlib.sha256(
                    json.dumps(rows, indent=2, ensure_ascii=False).encode()
                ).hexdigest(),
            )
            for name, rows in cut.items()
        },
    )


def _gsm8k() -> Dataset:
    heldout = (Part("all", 2), Part("test"))
    return Dataset(
        task="gsm8k",
        licence="by request",
        splits={
            "selection": Split(2, _digest("gsm8k", QUESTIONS[:2]), (Part("train"),), "a rule"),
            "heldout": Split(4, _digest("gsm8k", QUESTIONS[2:]), heldout, "a rule"),
        },
    )


def _digest(task: str, rows: list[dict[str, object]]) -> str:
    return rows_digest([get_task(task).parse(row) for row in rows])
