import json
from pathlib import Path

import datasets
import httpx
import pytest

from modnorm.errors import InvalidInputError, UnavailableError
from modnorm.spec import DataSpec
from modnorm.tasks import get_task
from modnorm.tasks.row_loading import load_data
from tests.faults import error_at

FIELD = "task.heldout"
COMMIT = "0123456789" * 4


def load(source="openai/gsm8k", split="test", **options):
    spec = DataSpec(source=source, split=split, **options)
    return load_data(get_task("gsm8k"), spec, field=FIELD).rows


class Builder:
    """The used part of a result of `load_dataset_builder`."""

    def __init__(self, rows, commit):
        self.rows = rows
        self.hash = commit
        self.prepared = False

    def download_and_prepare(self):
        self.prepared = True

    def as_dataset(self, split):
        assert self.prepared
        if split != "test":
            raise ValueError(f"Unknown split \"{split}\". Should be one of ['test'].")
        return datasets.Dataset.from_list(self.rows)


@pytest.fixture
def hub(monkeypatch):
    """Replace the hub: record requests, and answer or raise."""
    calls = []
    rows = [{"question": f"What is {n}?", "answer": f"#### {n}"} for n in range(5)]
    answer = [Builder(rows, COMMIT)]

    def load_dataset_builder(path, **options):
        calls.append((path, options))
        if isinstance(answer[0], Exception):
            raise answer[0]
        return answer[0]

    monkeypatch.setattr(datasets, "load_dataset_builder", load_dataset_builder)
    return calls, answer


def test_rows_come_from_the_named_split(hub):
    rows = load(config="main", revision="abc", offset=1, limit=2)
    assert rows == tuple({"question": f"What is {n}?", "answer": f"{n}"} for n in (1, 2))
    assert hub[0] == [("openai/gsm8k", {"name": "main", "revision": "abc"})]


def test_the_split_must_be_named():
    with error_at(f"{FIELD}.split", "needs a split"):
        load(split=None)


@pytest.mark.parametrize(
    "source", ["json", "gsm8k", "a/b/c", "https://example.org/a", "a b/c", "-a/b"]
)
def test_an_invalid_dataset_id_is_refused(hub, source):
    with error_at(f"{FIELD}.source", "no Hugging Face dataset"):
        load(source)
    assert hub[0] == []


def test_a_local_folder_never_shadows_the_hub(hub, tmp_path, monkeypatch):
    (tmp_path / "openai" / "gsm8k").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match="no Hugging Face dataset"):
        load()
    assert hub[0] == []


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (datasets.exceptions.DatasetNotFoundError("gone"), InvalidInputError),
        (ValueError("Config name is missing"), InvalidInputError),
        (RuntimeError("Dataset scripts are no longer supported"), InvalidInputError),
        (datasets.exceptions.DatasetGenerationError("corrupt"), InvalidInputError),
        (ConnectionError("no route"), UnavailableError),
        (httpx.ReadTimeout("too late"), UnavailableError),
    ],
)
def test_errors_of_the_hub_are_classified(hub, fault, error):
    hub[1][0] = fault
    with pytest.raises(error):
        load()


@pytest.mark.parametrize(
    "fault", [ImportError("To decode images, install 'Pillow'"), OSError("no image file")]
)
def test_a_row_that_cannot_be_decoded_is_an_error_of_its_source(hub, fault, monkeypatch):
    def decode(_dataset):
        raise fault
        yield

    monkeypatch.setattr(datasets.Dataset, "__iter__", decode)
    with error_at(f"{FIELD}.source", f"cannot read openai/gsm8k: {fault}"):
        load()


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """Cut the network; returns the folder that `datasets` keeps its copies in."""
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    return tmp_path


@pytest.fixture
def copy(offline):
    """Keep a copy of a dataset at COMMIT, as a download leaves it."""
    source = offline / "rows.jsonl"
    source.write_text('{"question": "What is 7?", "answer": "#### 7"}\n')
    builder = datasets.load_dataset_builder("json", data_files={"test": str(source)})
    builder.download_and_prepare()
    place = offline / "modnorm-tests___cached" / "default" / "0.0.0" / COMMIT
    place.parent.mkdir(parents=True)
    Path(builder.cache_dir).rename(place)
    for path in place.glob("json-*"):
        path.rename(place / path.name.replace("json-", "cached-"))
    info = place / "dataset_info.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | {"config_name": "default"}))


@pytest.mark.usefixtures("copy")
def test_offline_a_copy_serves_its_own_commit_only():
    name = "modnorm-tests/cached"
    assert load(name, revision=COMMIT) == ({"question": "What is 7?", "answer": "7"},)
    spec = DataSpec(source=name, split="test")
    assert load_data(get_task("gsm8k"), spec, field=FIELD).revision == COMMIT
    with error_at(f"{FIELD}.revision", f"the copy .* is of {COMMIT}", kind=UnavailableError):
        load(name, revision="f" * 40)
