import hashlib
import resource
import threading
from contextlib import contextmanager

import pytest

from modnorm.errors import CancelledError, UnavailableError
from modnorm.files import json_digest
from modnorm.services.common.artifact_store import ArtifactStore


def go_on():
    pass


@pytest.fixture
def store(tmp_path):
    return ArtifactStore(tmp_path / "artifacts")


def test_an_artifact_is_found_by_key_digest_and_prefix(store):
    text = '{"name": "Straße"}'
    digest = store.put(json_digest({"a": 1}), text)
    assert digest == hashlib.sha256(text.encode()).hexdigest()
    assert store.find(json_digest({"a": 1})) == text
    assert store.get(digest) == text
    assert store.get(digest[:16]) == text


@contextmanager
def full_disk():
    """Limit the size of this process's files, including pytest's output."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_an_outage(store):
    with pytest.raises(UnavailableError) as caught, full_disk():
        store.put("k" * 64, "text")
    assert caught.value.field == "cache_dir"


def test_a_disk_that_cannot_be_written_is_an_outage(tmp_path):
    (tmp_path / "file").write_text("no directory")
    store = ArtifactStore(tmp_path / "file")
    assert store.find("k" * 64) is None
    assert store.get("0" * 64) is None
    with pytest.raises(UnavailableError, match="cannot write"), store.lock("k" * 64, go_on):
        pass


def test_unknown_keys_are_absent(store):
    assert store.find("0" * 64) is None
    assert store.get("0" * 64) is None
    assert store.get("0" * 16) is None


def test_equal_content_is_stored_once(store, tmp_path):
    store.put("a" * 64, "{}")
    store.put("b" * 64, "{}")
    assert len(list((tmp_path / "artifacts").glob("*.json"))) == 1
    assert store.find("a" * 64) == store.find("b" * 64) == "{}"


def test_an_ambiguous_prefix_names_nothing(store, tmp_path):
    store.put("a" * 64, "{}")
    for tail in "01":
        (tmp_path / "artifacts" / f"{'f' * 63}{tail}.json").write_text("{}")
    assert store.get("f" * 16) is None


def test_a_damaged_artifact_is_absent(store, tmp_path, caplog):
    digest = store.put("a" * 64, '{"value": 1}')
    (tmp_path / "artifacts" / f"{digest}.json").write_text('{"value": 2}')
    assert store.find("a" * 64) is None
    assert "damaged artifact" in caplog.messages


@pytest.mark.parametrize(
    "content",
    [b"", b"../../secret", b"\xff\xfe\x00" * 20, "\u0661".encode() * 64, b"a" * 64 + b"\n"],
)
def test_a_damaged_key_is_absent_and_made_again(store, tmp_path, content):
    store.put("a" * 64, "{}")
    (tmp_path / "artifacts" / "keys" / ("a" * 64)).write_bytes(content)
    assert store.find("a" * 64) is None
    store.put("a" * 64, "{}")
    assert store.find("a" * 64) == "{}"


def test_nothing_is_left_behind(store, tmp_path):
    store.put("a" * 64, "{}")
    assert not list((tmp_path / "artifacts").rglob(".*"))


def test_a_lock_is_held_by_one(store):
    order = []
    entered = threading.Event()
    leave = threading.Event()

    def first():
        with store.lock("a" * 64, go_on):
            entered.set()
            leave.wait()
            order.append("first")

    def second():
        with store.lock("a" * 64, go_on):
            order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    entered.wait()
    threads[1].start()
    with store.lock("b" * 64, go_on):
        order.append("other")
    leave.set()
    for thread in threads:
        thread.join()
    assert order == ["other", "first", "second"]


def test_waiting_for_a_lock_can_be_ended(store):
    checks = []

    def check():
        checks.append(1)
        if len(checks) == 2:
            raise CancelledError("enough")

    with store.lock("a" * 64, go_on), pytest.raises(CancelledError), store.lock("a" * 64, check):
        raise AssertionError
    with store.lock("a" * 64, go_on):
        pass
