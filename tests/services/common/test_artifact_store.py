import hashlib
import threading

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


def test_a_disk_that_cannot_be_written_is_an_outage(tmp_path):
    (tmp_path / "file").write_text("no directory")
    store = ArtifactStore(tmp_path / "file")
    assert store.find("k" * 64) is None
    assert store.get("0" * 64) is None
    with pytest.raises(UnavailableError, match="cannot write"), store.lock("k" * 64, go_on):
        pass


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
