"""Named splits in folders and on the hub, with small test data sets."""

import dataclasses
import json

import pytest

from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.spec import DataSpec
from modnorm.tasks import catalogue, get_task
from modnorm.tasks.row_files import OpenedSource
from modnorm.tasks.row_loading import load_data
from modnorm.tasks.splits import open_split, shuffled
from tests.faults import error_at

FIELD = "task.heldout"
COMMIT = "0123456789" * 4


def rows_of(found):
    return [row for _, row in found.rows]


def test_the_shuffle_is_the_papers():
    rows = [{"id": number} for number in range(10)]
    assert [row["id"] for row in shuffled(rows)] == [7, 3, 2, 8, 5, 6, 9, 4, 0, 1]


def test_a_split_is_found_in_a_folder_of_own_files(folder, puzzles):
    spec = DataSpec(source="split:gsm8k/heldout", offset=1, limit=2)
    rows = load_data(get_task("gsm8k"), spec, field=FIELD, roots=[folder]).rows
    assert [row["answer"] for row in rows] == ["3", "4"]
    spec = DataSpec(source="split:countdown/selection")
    rows = load_data(get_task("countdown"), spec, field=FIELD, roots=[folder]).rows
    assert [row["numbers"] for row in rows] == [row["numbers"] for row in shuffled(puzzles)[:5]]


def test_rows_are_read_from_any_file_that_has_them(folder, questions):
    (folder / "gsm8k" / "test.jsonl").unlink()
    (folder / "gsm8k" / "all.json").write_text(json.dumps(questions))
    found = open_split("gsm8k/heldout", folders=[folder], field=FIELD)
    assert rows_of(found) == questions[2:]
    assert found.taken_from == "all.json, rows 3 to 6"


def test_other_rows_than_the_catalogues_are_refused_by_file(folder):
    path = folder / "gsm8k" / "train.jsonl"
    path.write_text(path.read_text().replace("q1", "q9"))
    with error_at(f"{FIELD}.source", "gives rows with the digest") as caught:
        open_split("gsm8k/selection", folders=[folder], field=FIELD)
    assert caught.value.message.startswith(str(path))
    path.write_text(path.read_text().partition("\n")[0])
    with pytest.raises(InvalidInputError, match="gives 1 rows where gsm8k/selection has 2"):
        open_split("gsm8k/selection", folders=[folder], field=FIELD)


def test_a_missing_split_is_refused_with_the_remedy(tmp_path, data):
    with pytest.raises(PreconditionError) as caught:
        open_split("countdown/heldout", folders=[tmp_path], field=FIELD)
    assert caught.value.remedy == "modnorm data fetch countdown"
    with pytest.raises(PreconditionError) as caught:
        open_split("gsm8k/heldout", folders=[tmp_path], field=FIELD)
    assert "modnorm data fetch gsm8k --from FOLDER" in str(caught.value)


@pytest.fixture
def hub(monkeypatch, data, questions):
    """Put the small GSM8K on a replaced hub; return the recorded requests."""
    asked = []
    answer = {"rows": questions, "commit": COMMIT}

    def read(spec, *, field):
        asked.append((spec.source, spec.config, spec.split, spec.revision))
        rows = ((f"row {number}", row) for number, row in enumerate(answer["rows"], 1))
        return OpenedSource(rows, answer["commit"])

    monkeypatch.setattr("modnorm.tasks.splits.read_dataset", read)
    public = dataclasses.replace(catalogue.DATASETS["gsm8k"], hub="a/b", config="main")
    monkeypatch.setattr(catalogue, "DATASETS", {"gsm8k": public})
    return asked, answer


def pin(monkeypatch, revision):
    pinned = dataclasses.replace(catalogue.DATASETS["gsm8k"], revision=revision)
    monkeypatch.setattr(catalogue, "DATASETS", {"gsm8k": pinned})


def test_a_hub_split_is_pinned_and_verified(tmp_path, hub, questions, monkeypatch):
    asked, answer = hub
    pin(monkeypatch, COMMIT)
    found = open_split("gsm8k/heldout", folders=[tmp_path], field=FIELD)
    assert rows_of(found) == questions[2:]
    assert found.revision == COMMIT
    assert found.taken_from == "all, rows 3 to 6"
    assert asked == [("a/b", "main", "all", COMMIT)]
    answer["rows"] = [{**row, "question": "other"} for row in questions]
    with pytest.raises(InvalidInputError, match="a/b gives rows with the digest"):
        open_split("gsm8k/heldout", folders=[tmp_path], field=FIELD)
    answer["rows"] = [*questions[:4], {"question": "?"}, questions[5]]
    with pytest.raises(InvalidInputError, match="a/b, row 5, column 'answer'"):
        open_split("gsm8k/heldout", folders=[tmp_path], field=FIELD)
