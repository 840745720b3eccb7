import pytest

from modnorm.artifact_store import ArtifactStore
from modnorm.errors import CancelledError


@pytest.fixture
def store(tmp_path):
    return ArtifactStore(tmp_path / "artifacts")


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


def test_waiting_for_another_process_can_be_ended(store):
    checks = []

    def check():
        checks.append(1)
        if len(checks) == 2:
            raise CancelledError("enough")

    def make():
        with pytest.raises(CancelledError):
            store.find_or_make("a" * 64, pytest.fail, check)
        return "{}"

    assert store.find_or_make("a" * 64, make) == "{}"
    assert store.find_or_make("a" * 64, pytest.fail) == "{}"
