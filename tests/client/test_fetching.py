import hashlib
import os
from typing import Any

import grpc
import pytest

from modnorm.client.client import Client
from modnorm.client.fetching import cached_run, save_run
from modnorm.errors import UnavailableError
from modnorm.files import own_draft
from modnorm.v1 import experiment_pb2 as experiments

FILES = {
    "spec.json": b"{}",
    "rows/heldout.jsonl": b"",
    "answers.parquet": bytes(range(256)) * 8,
    "results.json": b"[]",
}


@pytest.fixture
def lab(serve, servicer, tmp_path, monkeypatch, quick_retries):
    """A client of a lab with `FILES`, and the calls that it made: file and offset.

    `changes` replaces the content of files on their way; a stream of `breaks` ends early, once.
    """
    monkeypatch.setenv("MODNORM_CACHE_DIR", str(tmp_path / "cache"))
    calls: list[tuple[str, int]] = []
    breaks: set[str] = set()
    changes: dict[str, Any] = {}

    def files(request, context):
        found = [
            experiments.RunFile(
                name=name, size=len(content), digest=hashlib.sha256(content).hexdigest()
            )
            for name, content in FILES.items()
        ]
        found += [experiments.RunFile(name=name, size=1) for name in changes.get("added", ())]
        return experiments.ListRunFilesResponse(files=found)

    def file(request, context):
        calls.append((request.name, request.offset))
        content = changes.get(request.name, FILES.get(request.name, b"?"))[request.offset :]
        if request.name in breaks:
            breaks.remove(request.name)
            yield experiments.GetRunFileResponse(chunk=content[:100])
            context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        yield experiments.GetRunFileResponse(chunk=content)

    with Client(serve(servicer(ListRunFiles=files, GetRunFile=file))) as client:
        yield client, calls, breaks, changes


def contents(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_run_is_fetched_once_and_its_results_last(lab, tmp_path):
    client, calls, *_ = lab
    save_run(client, "e1", tmp_path / "run")
    assert contents(tmp_path / "run") == FILES
    assert calls[-1] == ("results.json", 0)
    fetched = len(calls)
    save_run(client, "e1", tmp_path / "run")
    assert len(calls) == fetched
    (tmp_path / "run" / "answers.parquet").write_bytes(b"damaged")
    (tmp_path / "run" / "spec.json").write_bytes(b"{ }")
    save_run(client, "e1", tmp_path / "run")
    assert calls[fetched:] == [("answers.parquet", 0)]
    assert contents(tmp_path / "run") == {**FILES, "spec.json": b"{ }"}


def test_the_cache_keeps_a_run_by_its_content(lab):
    client, calls, *_ = lab
    place = cached_run(client, "e1")
    assert contents(place) == FILES
    assert place.name == "e1"
    fetched = len(calls)
    assert cached_run(client, "e1") == place
    assert len(calls) == fetched


def test_a_fetch_removes_what_killed_ones_left(lab):
    place = cached_run(lab[0], "e1")
    old, new = (own_draft(place / "answers.parquet") for _ in range(2))
    for draft in (old, new):
        draft.write_bytes(b"a part")
    os.utime(old, (0.0, 0.0))
    assert cached_run(lab[0], "e1") == place
    assert not old.exists()
    assert new.exists()  # another process may be at work on it


def test_a_broken_stream_goes_on_where_it_broke(lab, tmp_path):
    client, calls, breaks, _ = lab
    breaks.add("answers.parquet")
    save_run(client, "e1", tmp_path / "run")
    assert calls[:2] == [("answers.parquet", 0), ("answers.parquet", 100)]
    assert contents(tmp_path / "run") == FILES


def test_a_damaged_file_is_not_kept(lab, tmp_path):
    client, _, _, changes = lab
    changes["answers.parquet"] = bytes(len(FILES["answers.parquet"]))
    with pytest.raises(UnavailableError, match="damaged"):
        save_run(client, "e1", tmp_path / "run")
    assert not contents(tmp_path / "run")


@pytest.mark.parametrize("name", ["/etc/x", "../x", "rows/../../x"])
def test_a_lab_writes_nothing_outside_of_the_directory(lab, tmp_path, name):
    client, calls, _, changes = lab
    changes["added"] = [name]
    with pytest.raises(UnavailableError, match="outside"):
        save_run(client, "e1", tmp_path / "run")
    assert name not in {each for each, _ in calls}
    assert not (tmp_path / "x").exists()
