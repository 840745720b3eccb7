import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.parquet import write_table

from modnorm.sandbox import Sandbox
from modnorm.tasks import Task, get_task

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
