import pytest

from modnorm.errors import InvalidInputError
from modnorm.suites.cells import make_cells
from modnorm.suites.declaration import Suite
from modnorm.suites.loading import LoadedSuite
from modnorm.suites.running.settling import settle

TASK = (
    'name: capitals\nprompt: {user: "{country}?"}\ncolumns: [country, capital]\nanswer: capital\n'
)
TASK += 'extract: {regex: "<answer>(.*?)</answer>"}\ncompare: exact\nmax_tokens: 8\n'


def loaded(**method):
    task = {"name": "task.yaml", "selection": "a.jsonl", "heldout": "b.jsonl"}
    suite = Suite.model_validate(
        {
            "name": "s",
            "title": "s",
            "base": {"model": "tiny-thicket", "population": {"size": 1}, "task": task},
            "axes": {"method": {"r": {"method": {"name": "randopt", **method}}}},
            "seeds": [1],
        }
    )
    return LoadedSuite(suite, make_cells(suite))


def test_a_task_file_is_carried_by_the_cells_that_name_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.yaml").write_text(TASK)
    (cell,) = settle(loaded(sigma=0.1), tmp_path).cells
    assert cell.spec.task.name == "capitals"
    assert cell.spec.task.declaration == TASK


def test_a_missing_file_names_the_cell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError) as caught:
        settle(loaded(sigma=0.1), tmp_path)
    assert caught.value.field == "cell r / 1"
    (tmp_path / "task.yaml").write_text(TASK)
    with pytest.raises(InvalidInputError, match="no file absent") as caught:
        settle(loaded(sigma={"artifact": "absent.json"}), tmp_path)
    assert caught.value.field == "cell r / 1"
