"""Fetching and checking of small test data sets."""

import dataclasses
import json
import os

import httpx
import pytest

from modnorm.errors import InvalidInputError, NotFoundError, UnavailableError
from modnorm.files import own_draft
from modnorm.spec import DataSpec
from modnorm.tasks import catalogue, get_task
from modnorm.tasks.data_fetch import check, fetch
from modnorm.tasks.row_files import OpenedSource
from modnorm.tasks.row_loading import load_data
from modnorm.tasks.splits import open_split
from tests.faults import error_at

FIELD = "task.heldout"
COMMIT = "0123456789" * 4
URL = "https://example.org/countdown.json"


@pytest.fixture
def out(tmp_path_factory):
    """Return a folder to fetch into."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def fetched(folder, out):
    """Fetch both data sets from their own files; return the folder."""
    for task in ("countdown", "gsm8k"):
        fetch(task, out, source=folder)
    return out


def files(place):
    return {path.name: path.read_bytes() for path in place.iterdir()}


@pytest.mark.parametrize("task", ["countdown", "gsm8k"])
def test_fetched_data_pass_the_check(task, folder, out):
    splits, written = fetch(task, out, source=folder)
    assert written
    assert check(task, out) == splits
    for name, split in splits.items():
        source = open_split(f"{task}/{name}", folders=[folder], field=FIELD)
        assert [row for _, row in split.rows] == [row for _, row in source.rows]


def test_intact_files_are_kept(fetched, folder):
    before = {path: path.stat().st_mtime_ns for path in (fetched / "gsm8k").iterdir()}
    for source in (None, folder, fetched):
        assert not fetch("gsm8k", fetched, source=source)[1]
    assert {path: path.stat().st_mtime_ns for path in (fetched / "gsm8k").iterdir()} == before


def test_damaged_files_are_fetched_again(fetched, folder):
    before = files(fetched / "gsm8k")
    (fetched / "gsm8k" / "heldout.jsonl").write_text("{")
    killed = own_draft(fetched / "gsm8k" / "heldout.jsonl")
    killed.touch()
    os.utime(killed, (0.0, 0.0))
    assert fetch("gsm8k", fetched, source=folder)[1]
    assert files(fetched / "gsm8k") == before


def test_own_files_check_too(folder):
    paths = [split.path for split in check("gsm8k", folder).values()]
    assert paths == [folder / "gsm8k" / name for name in ("train.jsonl", "test.jsonl")]
    (folder / "gsm8k" / "test.jsonl").unlink()
    with pytest.raises(InvalidInputError, match="has no file of gsm8k/heldout"):
        check("gsm8k", folder)
    (folder / "gsm8k" / "train.jsonl").unlink()
    with pytest.raises(NotFoundError, match="has no file of gsm8k/selection, gsm8k/heldout"):
        check("gsm8k", folder)


LINE = '{"answer": "so\\n#### 4", "level": "easy", "question": "q4?"}'


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("q4?", "q5?", "gives rows with the digest"),
        ("#### 4", "####", ", line 3, column 'answer'"),
        (f"{LINE}\n", "", "gives 3 rows where"),
        (LINE, LINE[:-1], ", line 3: not valid JSON"),
    ],
)
def test_any_change_is_refused_by_file_and_line(fetched, old, new, fault):
    path = fetched / "gsm8k" / "heldout.jsonl"
    path.write_text(path.read_text().replace(old, new))
    with error_at("folder", f"{path},? ?{fault}"):
        check("gsm8k", fetched)


@pytest.fixture
def download(monkeypatch):
    """Answer the download with a status and a content."""

    def serve(status, content):
        request = httpx.Request("GET", URL)
        response = httpx.Response(status, content=content, request=request)
        monkeypatch.setattr(httpx, "get", lambda *_, **__: response)

    return serve


def test_a_download_becomes_the_papers_own_files(out, folder, puzzles, download):
    download(200, json.dumps(puzzles).encode())
    fetch("countdown", out)
    fetch("countdown", out / "own", source=folder)
    assert files(out / "countdown") == files(out / "own" / "countdown")


def test_a_failed_or_changed_download_is_refused(tmp_path, data, download):
    download(503, b"")
    with pytest.raises(UnavailableError, match="cannot download"):
        fetch("countdown", tmp_path)
    download(200, b"[]")
    with pytest.raises(InvalidInputError, match="has changed"):
        fetch("countdown", tmp_path)


@pytest.fixture
def unpinned(monkeypatch, data, questions):
    """Put the small GSM8K on the hub, in a catalogue that knows no digest and no commit."""
    small = catalogue.DATASETS["gsm8k"]
    splits = {
        name: dataclasses.replace(split, digest=None, parts=split.parts[:1])
        for name, split in small.splits.items()
    }
    public = dataclasses.replace(small, hub="a/b", splits=splits)
    monkeypatch.setattr(catalogue, "DATASETS", {"gsm8k": public})
    rows = [(f"row {number}", row) for number, row in enumerate(questions, 1)]
    monkeypatch.setattr(
        "modnorm.tasks.splits.read_dataset",
        lambda spec, *, field: OpenedSource(iter(rows), COMMIT),
    )


def test_the_commit_that_was_read_is_kept_with_the_rows(unpinned, tmp_path):
    spec = DataSpec(source="split:gsm8k/heldout")
    loaded = load_data(get_task("gsm8k"), spec, field=FIELD, roots=[tmp_path])
    assert loaded.revision == COMMIT
