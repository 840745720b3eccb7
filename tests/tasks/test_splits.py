"""Named splits and fetching, on small data sets of the tests' own."""

import dataclasses
import hashlib
import json

import httpx
import pytest

from modnorm.errors import InvalidInputError, PreconditionError, UnavailableError
from modnorm.spec import DataSpec
from modnorm.tasks import catalogue, fetch, get_task
from modnorm.tasks.catalogue import DATASETS, Dataset, Part, Split, find_split
from modnorm.tasks.data import load_rows
from modnorm.tasks.rows import rows_digest
from modnorm.tasks.splits import open_split, shuffled

FIELD = "task.heldout"
PUZZLES = [{"id": n, "numbers": [n, 1], "target": str(n + 1)} for n in range(20)]
QUESTIONS = [{"question": f"q{n}?", "answer": f"so\n#### {n}"} for n in range(6)]
URL = "https://example.org/countdown.json"


def parsed_digest(task, rows):
    return rows_digest([get_task(task).parse(row) for row in rows])


@pytest.fixture
def data(monkeypatch):
    """Put small data sets into the catalogue."""
    order = shuffled(PUZZLES)
    cut = {"selection": order[:5], "heldout": order[5:]}
    countdown = Dataset(
        task="countdown",
        licence="none",
        url=URL,
        sha256=hashlib.sha256(json.dumps(PUZZLES).encode()).hexdigest(),
        shuffled=True,
        splits={
            name: Split(
                rows=len(rows),
                digest=parsed_digest("countdown", rows),
                parts=(Part("countdown", 0 if name == "selection" else 5),),
                rule="a rule",
                file_sha256=hashlib.sha256(
                    json.dumps(rows, indent=2, ensure_ascii=False).encode()
                ).hexdigest(),
            )
            for name, rows in cut.items()
        },
    )
    gsm8k = Dataset(
        task="gsm8k",
        licence="none",
        splits={
            "selection": Split(
                2, parsed_digest("gsm8k", QUESTIONS[:2]), (Part("train"),), "a rule"
            ),
            "heldout": Split(
                4, parsed_digest("gsm8k", QUESTIONS[2:]), (Part("all", 2), Part("test")), "a rule"
            ),
        },
    )
    monkeypatch.setattr(catalogue, "DATASETS", {"countdown": countdown, "gsm8k": gsm8k})
    monkeypatch.setattr(fetch, "DATASETS", {"countdown": countdown, "gsm8k": gsm8k})


@pytest.fixture
def folder(tmp_path, data):
    """Write the data sets' own files into a folder."""
    (tmp_path / "countdown").mkdir()
    (tmp_path / "countdown" / "countdown.json").write_text(json.dumps(PUZZLES))
    (tmp_path / "gsm8k").mkdir()
    lines = [f"{json.dumps(row)}\n" for row in QUESTIONS]
    (tmp_path / "gsm8k" / "train.jsonl").write_text("".join(lines[:2]))
    (tmp_path / "gsm8k" / "test.jsonl").write_text("".join(lines[2:]))
    return tmp_path


def test_the_shuffle_is_the_papers():
    rows = [{"id": number} for number in range(10)]
    assert [row["id"] for row in shuffled(rows)] == [7, 3, 2, 8, 5, 6, 9, 4, 0, 1]


def test_the_catalogue_knows_the_papers_sizes():
    sizes = {
        task: [data.splits[name].rows for name in ("selection", "heldout")]
        for task, data in DATASETS.items()
    }
    assert sizes == {
        "countdown": [200, 500],
        "gsm8k": [200, 1319],
        "math500": [200, 300],
        "mbpp": [200, 500],
        "olympiadbench": [200, 474],
        "rocstories": [200, 9817],
        "uspto50k": [200, 1001],
    }


def test_a_split_is_found_in_a_folder_of_own_files(folder):
    spec = DataSpec(source="split:gsm8k/heldout", offset=1, limit=2)
    rows = load_rows(get_task("gsm8k"), spec, field=FIELD, roots=[folder])
    assert [row["answer"] for row in rows] == ["3", "4"]
    spec = DataSpec(source="split:countdown/selection")
    rows = load_rows(get_task("countdown"), spec, field=FIELD, roots=[folder])
    assert [row["numbers"] for row in rows] == [row["numbers"] for row in shuffled(PUZZLES)[:5]]


def test_fetched_splits_are_found_and_check(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("data")
    for task in ("countdown", "gsm8k"):
        records = fetch.fetch(task, out, source=folder)
        assert fetch.check(task, out) == records
        for record in records:
            name = record.name
            assert open_split(name, folders=[out], field=FIELD) == open_split(
                name, folders=[folder], field=FIELD
            )
    manifest = json.loads((out / "gsm8k" / "manifest.json").read_text())
    assert manifest["source"] == "a folder"
    assert [split["rows"] for split in manifest["splits"]] == [2, 4]


def test_a_changed_file_is_noticed(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("data")
    fetch.fetch("gsm8k", out, source=folder)
    path = out / "gsm8k" / "heldout.jsonl"
    path.write_text(path.read_text().replace("#### 5", "#### 6"))
    with pytest.raises(InvalidInputError, match="was changed"):
        fetch.check("gsm8k", out)
    with pytest.raises(InvalidInputError, match="do not hold the 4 rows"):
        open_split("gsm8k/heldout", folders=[out], field=FIELD)
    path.unlink()
    with pytest.raises(InvalidInputError, match="is missing"):
        fetch.check("gsm8k", out)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"splits": [{"name": 1}]}'])
def test_a_broken_manifest_is_refused(tmp_path, data, content):
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k" / "manifest.json").write_text(content)
    with pytest.raises(InvalidInputError, match="is no manifest"):
        fetch.check("gsm8k", tmp_path)


def test_other_rows_than_the_catalogues_are_refused(folder):
    path = folder / "gsm8k" / "train.jsonl"
    path.write_text(path.read_text().replace("q1", "q9"))
    with pytest.raises(InvalidInputError, match="do not hold the 2 rows") as caught:
        fetch.fetch("gsm8k", folder / "out", source=folder)
    assert caught.value.field == "data.source"


def test_a_split_that_is_nowhere_is_refused_with_the_remedy(tmp_path, data):
    with pytest.raises(PreconditionError) as caught:
        open_split("countdown/heldout", folders=[tmp_path], field=FIELD)
    assert caught.value.remedy == "modnorm data fetch countdown"
    with pytest.raises(PreconditionError) as caught:
        open_split("gsm8k/heldout", folders=[tmp_path], field=FIELD)
    assert "ask for them" in str(caught.value)
    with pytest.raises(PreconditionError, match="not public"):
        fetch.fetch("gsm8k", tmp_path)
    with pytest.raises(InvalidInputError, match="has no rows of gsm8k/selection"):
        fetch.fetch("gsm8k", tmp_path, source=tmp_path)


@pytest.mark.parametrize("name", ["gsm8k/dev", "chess/test", "gsm8k", ""])
def test_an_unknown_split_is_refused_with_the_known_ones(name):
    with pytest.raises(InvalidInputError) as caught:
        find_split(name, field=f"{FIELD}.source")
    assert "gsm8k/heldout" in str(caught.value)


def test_an_unknown_task_has_no_data(tmp_path):
    with pytest.raises(InvalidInputError, match="no data of a task 'chess'"):
        fetch.fetch("chess", tmp_path)
    with pytest.raises(InvalidInputError, match="no data of a task 'chess'"):
        fetch.check("chess", tmp_path)


@pytest.fixture
def download(monkeypatch):
    """Answer the download with a status and a content."""

    def serve(status, content):
        request = httpx.Request("GET", URL)
        response = httpx.Response(status, content=content, request=request)
        monkeypatch.setattr(httpx, "get", lambda *_, **__: response)

    return serve


def test_a_download_becomes_the_papers_own_files(tmp_path, data, download):
    download(200, json.dumps(PUZZLES).encode())
    records = fetch.fetch("countdown", tmp_path)
    expected = [split.file_sha256 for split in catalogue.DATASETS["countdown"].splits.values()]
    assert [record.sha256 for record in records] == expected
    assert json.loads((tmp_path / "countdown" / "manifest.json").read_text())["source"] == URL


def test_a_failed_or_changed_download_is_refused(tmp_path, data, download):
    download(503, b"")
    with pytest.raises(UnavailableError, match="cannot download"):
        fetch.fetch("countdown", tmp_path)
    download(200, b"[]")
    with pytest.raises(InvalidInputError, match="another file than expected"):
        fetch.fetch("countdown", tmp_path)


def test_a_hub_split_is_pinned_and_verified(tmp_path, data, monkeypatch):
    asked = []

    def read(spec, *, field):
        asked.append((spec.source, spec.config, spec.split, spec.revision))
        return iter(QUESTIONS)

    monkeypatch.setattr("modnorm.tasks.splits.read_dataset", read)
    hub = dataclasses.replace(
        catalogue.DATASETS["gsm8k"], hub="a/b", config="main", revision="0123"
    )
    monkeypatch.setattr(catalogue, "DATASETS", {"gsm8k": hub})
    rows = open_split("gsm8k/heldout", folders=[tmp_path], field=FIELD)
    assert rows == QUESTIONS[2:]
    assert asked == [("a/b", "main", "all", "0123")]
    changed = [{**row, "question": "other"} for row in QUESTIONS]
    monkeypatch.setattr("modnorm.tasks.splits.read_dataset", lambda spec, *, field: iter(changed))
    with pytest.raises(InvalidInputError, match="a/b: the rows have the digest"):
        open_split("gsm8k/heldout", folders=[tmp_path], field=FIELD)


def test_the_record_of_a_runs_rows():
    task = get_task("gsm8k")
    rows = [task.parse(row) for row in QUESTIONS]
    record = fetch.describe_rows(DataSpec(source="rows.jsonl", offset=3), rows)
    assert dataclasses.asdict(record) == {
        "source": "rows.jsonl",
        "config": None,
        "split": None,
        "revision": None,
        "offset": 3,
        "rows": 6,
        "digest": rows_digest(rows),
    }
