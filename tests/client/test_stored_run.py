import json

import pytest

from modnorm.client.stored_run import find_run
from modnorm.errors import InvalidInputError, PreconditionError


@pytest.fixture
def write_run(spec):
    def write(path, *, state=None):
        path.mkdir(parents=True)
        (path / "spec.json").write_text(json.dumps(spec.model_dump(mode="json")))
        if state is not None:
            (state / "state").mkdir(parents=True)
            (state / "state" / "modnorm.db").touch()
        return path

    return write


def test_a_run_of_one_spec_has_its_lab_inside(write_run, spec, tmp_path):
    path = write_run(tmp_path / "run", state=tmp_path / "run")
    found = find_run(path)
    assert (found.path, found.home, found.spec) == (path, path, spec)


def test_a_run_of_several_specs_has_its_lab_around(write_run, tmp_path, monkeypatch):
    write_run(tmp_path / "runs" / "small", state=tmp_path / "runs")
    monkeypatch.chdir(tmp_path / "runs" / "small")
    assert find_run(tmp_path / "runs" / "small").home == tmp_path / "runs"
    assert find_run(tmp_path.cwd().relative_to(tmp_path.cwd())).home == tmp_path / "runs"


def test_a_directory_of_several_runs_is_refused_with_their_names(write_run, tmp_path):
    for name in ("small", "large"):
        write_run(tmp_path / "runs" / name)
    with pytest.raises(InvalidInputError) as raised:
        find_run(tmp_path / "runs")
    assert str(raised.value.remedy).endswith(f"{tmp_path}/runs/large, {tmp_path}/runs/small")


@pytest.mark.parametrize("name", ["absent", "."])
def test_what_is_no_run_is_refused_and_left_alone(name, tmp_path):
    with pytest.raises(InvalidInputError, match="no directory of a run"):
        find_run(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_results_without_completions_are_refused(write_run, tmp_path):
    path = write_run(tmp_path / "shown")
    (tmp_path / "state").mkdir()
    with pytest.raises(PreconditionError) as raised:
        find_run(path)
    assert "--server" in str(raised.value.remedy)
