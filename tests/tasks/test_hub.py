import sys

import datasets
import pytest

from modnorm.errors import InvalidInputError, PreconditionError, UnavailableError
from modnorm.spec import DataSpec
from modnorm.tasks import get_task
from modnorm.tasks.data import load_rows

FIELD = "task.heldout"


def load(source="openai/gsm8k", split="test", **options):
    spec = DataSpec(source=source, split=split, **options)
    return load_rows(get_task("gsm8k"), spec, field=FIELD)


@pytest.fixture
def hub(monkeypatch):
    """Stand in for the hub: what `load_dataset` is asked for and what it answers."""
    calls = []
    answer = datasets.Dataset.from_list(
        [{"question": f"What is {n}?", "answer": f"#### {n}"} for n in range(5)]
    )

    def load_dataset(path, **options):
        calls.append((path, options))
        if isinstance(answer_or_error[0], Exception):
            raise answer_or_error[0]
        return answer_or_error[0]

    answer_or_error = [answer]
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return calls, answer_or_error


def test_rows_come_from_the_named_split(hub):
    rows = load(config="main", revision="abc", offset=1, limit=2)
    assert rows == tuple({"question": f"What is {n}?", "answer": f"{n}"} for n in (1, 2))
    expected = {"name": "main", "split": "test", "revision": "abc"}
    assert hub[0] == [("openai/gsm8k", expected)]


def test_a_malformed_row_is_named(hub):
    hub[1][0] = datasets.Dataset.from_list([{"question": "?", "answer": "none"}])
    with pytest.raises(InvalidInputError, match="openai/gsm8k, row 1, column 'answer'"):
        load()


def test_the_split_must_be_named():
    with pytest.raises(InvalidInputError, match="needs a split") as caught:
        load(split=None)
    assert caught.value.field == f"{FIELD}.split"


@pytest.mark.parametrize(
    "source", ["json", "gsm8k", "a/b/c", "https://example.org/a", "a b/c", "-a/b"]
)
def test_what_is_no_dataset_id_is_refused(hub, source):
    with pytest.raises(InvalidInputError, match="no Hugging Face dataset") as caught:
        load(source)
    assert caught.value.field == f"{FIELD}.source"
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
        (ValueError("Unknown split 'test'"), InvalidInputError),
        (ConnectionError("no route"), UnavailableError),
    ],
)
def test_what_the_hub_answers_is_told_apart(hub, fault, error):
    hub[1][0] = fault
    with pytest.raises(error):
        load()


def test_offline_is_an_unavailable_dependency(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    with pytest.raises(UnavailableError, match="download it first"):
        load("modnorm-tests/not-cached")


def test_without_the_package_the_remedy_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(PreconditionError, match=r"pip install 'modnorm\[data\]'"):
        load()
