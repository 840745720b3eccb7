import fnmatch
import json
import shutil
from pathlib import Path

import httpx
import pytest
from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from modnorm.checkpoint import hub
from modnorm.checkpoint.reference import check_offline, resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.errors import InvalidInputError, UnavailableError
from tests.faults import error_at

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Repository:
    """A repository of the Hub, as `snapshot_download` shows it."""

    def __init__(self, files: Path, cache: Path) -> None:
        self.files, self.cache = files, cache
        self.revisions: list[str | None] = []

    def snapshot(
        self, name: str, *, revision: str | None, allow_patterns: list[str], tqdm_class: type
    ) -> str:
        self.revisions.append(revision)
        target = self.cache / COMMIT
        target.mkdir(parents=True, exist_ok=True)
        for file in self.files.iterdir():
            if any(fnmatch.fnmatch(file.name, pattern) for pattern in allow_patterns):
                shutil.copy(file, target)
                tqdm_class(disable=True).update(file.stat().st_size)
        return str(target)


@pytest.fixture
def repository(save_model, tmp_path_factory, monkeypatch):
    directory = save_model(shard="20KB")
    (directory / "consolidated.safetensors").write_text("not needed")
    (directory / "modeling.py").write_text("raise SystemExit")
    (directory / "preprocessor_config.json").write_text("{}")
    stored = Repository(directory, tmp_path_factory.mktemp("cache"))
    monkeypatch.setattr(hub, "snapshot_download", stored.snapshot)
    return stored


def test_a_repository_is_pinned_to_the_commit_it_was_resolved_to(repository):
    checkpoint = resolve_checkpoint("owner/name", "main", roots=())
    assert checkpoint.revision == COMMIT
    assert checkpoint.name == "owner/name"
    assert repository.revisions == ["main", COMMIT]


def test_a_download_shows_signs_of_life(repository):
    beats = list[None]()
    resolve_checkpoint("owner/name", on_bytes=lambda: beats.append(None))
    assert len(beats) > len(list(repository.files.glob("model-*")))


def test_only_the_files_of_a_checkpoint_are_fetched(repository):
    fetched = {file.name for file in resolve_checkpoint("owner/name").directory.iterdir()}
    assert {"config.json", "model.safetensors.index.json"} < fetched
    assert "preprocessor_config.json" in fetched
    assert "model-00001-of-00002.safetensors" in fetched
    assert not fetched & {"consolidated.safetensors", "modeling.py"}


def test_weights_are_fetched_by_their_names_in_the_index(repository):
    index = repository.files / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    shards = {name: f"{name}.other.safetensors" for name in set(content["weight_map"].values())}
    for name, other in shards.items():
        (repository.files / name).rename(repository.files / other)
    content["weight_map"] = {key: shards[name] for key, name in content["weight_map"].items()}
    index.write_text(json.dumps(content))
    assert len(CheckpointWeights(resolve_checkpoint("owner/name")).layout) == 17
    assert not list(repository.cache.rglob("consolidated*"))


def test_an_unsupported_model_costs_no_download(repository, edit_config):
    edit_config(repository.files, model_type="mixtral")
    with pytest.raises(InvalidInputError, match="mixtral"):
        resolve_checkpoint("owner/name")
    assert not list(repository.cache.rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("raised", "expected", "field"),
    [
        (RepositoryNotFoundError, InvalidInputError, "model.name"),
        (GatedRepoError, InvalidInputError, "model.name"),
        (RevisionNotFoundError, InvalidInputError, "model.revision"),
        (RemoteEntryNotFoundError, InvalidInputError, "model.name"),
        (LocalEntryNotFoundError, UnavailableError, "model.name"),
        (httpx.ConnectTimeout, UnavailableError, "model.name"),
        (OSError, UnavailableError, "model.name"),
    ],
)
def test_errors_of_the_hub_are_distinguished(monkeypatch, raised, expected, field):
    def fail(*_args, **_options):
        if issubclass(raised, HfHubHTTPError):
            request = httpx.Request("GET", "https://localhost/owner/name")
            raise raised("refused", response=httpx.Response(404, request=request))
        raise raised("no answer")

    monkeypatch.setattr(hub, "snapshot_download", fail)
    with error_at(field, kind=expected):
        resolve_checkpoint("owner/name", "main")


def test_an_absent_model_is_refused_by_one_request_while_the_hub_is_out_of_reach(
    monkeypatch, tmp_path
):
    asked = []

    def unreachable(url, **_):
        asked.append(url)
        raise httpx.ConnectError("Name or service not known\nsecond line")

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "get_hf_file_metadata", unreachable)
    with pytest.raises(UnavailableError, match="Hub: Name or service not known \\(") as refused:
        hub.check_repository("some/absent", None)
    assert "second line" not in str(refused.value)
    assert len(asked) == 1


def test_a_cached_model_asks_nobody(monkeypatch, tmp_path):
    cached = tmp_path / "config.json"
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_, **__: str(cached))
    monkeypatch.setattr(hub, "get_hf_file_metadata", lambda *_, **__: pytest.fail("was asked"))
    hub.check_repository("some/cached", "main")


@pytest.mark.parametrize("check", [hub.check_repository, check_offline])
def test_a_name_that_no_repository_may_have_is_refused(check, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with error_at("model.name", kind=InvalidInputError):
        check("some/of--two", None)
