import os

import pytest

from modnorm.client.run_directory import RunDirectory, hold, is_held
from modnorm.errors import ConflictError, InvalidInputError, PreconditionError
from modnorm.spec import parse_spec
from tests.faults import error_at


def reseeded(spec, seed):
    data = spec.model_dump(mode="json")
    return parse_spec({**data, "population": {**data["population"], "seed": seed}})


def test_a_new_directory_is_free_and_a_claimed_one_goes_on(tmp_path, spec):
    directory = RunDirectory(tmp_path / "run")
    directory.check(spec)
    directory.reserve(spec)
    directory.check(spec)


def test_a_run_that_was_killed_while_it_claimed_its_directory_goes_on(tmp_path, spec, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    directory = RunDirectory(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(type(tmp_path), "replace", killed)
        patched.setattr(type(tmp_path), "unlink", lambda *_, **__: None)  # nothing cleans up
        with pytest.raises(KeyboardInterrupt):
            directory.reserve(spec)
    assert list(tmp_path.iterdir())
    directory.check(spec)
    directory.reserve(spec)
    assert [entry.name for entry in tmp_path.iterdir()] == ["spec.json"]


def test_a_run_of_another_spec_is_refused_by_the_field_that_differs(tmp_path, spec):
    directory = RunDirectory(tmp_path)
    directory.reserve(spec)
    with error_at("population.seed", "42 there, 43 here", kind=ConflictError):
        directory.check(reseeded(spec, 43))


def test_a_task_file_that_has_changed_since_the_run_is_named(tmp_path, spec):
    def declared(text):
        task = spec.task.model_copy(update={"declaration": text})
        return spec.model_copy(update={"task": task})

    directory = RunDirectory(tmp_path)
    directory.reserve(declared("name: a"))
    with error_at("task.declaration", "the task file has changed since", kind=ConflictError):
        directory.check(declared("name: b"))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "another"},
        {"failures": {"max_failed_candidates": 3}},
        {"population": {"size": 9, "ensemble_sizes": [1, 7]}},
    ],
)
def test_a_spec_that_keeps_its_evaluations_replaces_the_results(tmp_path, spec, changes):
    directory = RunDirectory(tmp_path)
    directory.reserve(spec)
    (tmp_path / "plots").mkdir()
    stale = [tmp_path / name for name in ("results.json", "rescored-exact.json", "plots/a.png")]
    for file in stale:
        file.touch()
    directory.reserve(spec)
    directory.renew(spec)
    changed = parse_spec({**spec.model_dump(mode="json"), **changes})
    directory.check(changed)
    directory.reserve(changed)
    assert directory.has_results_of(spec), "an interrupted run keeps the finished one"
    assert all(file.exists() for file in stale)
    directory.renew(changed)
    assert not any(file.exists() for file in stale)
    directory.check(spec)
    with pytest.raises(ConflictError):
        directory.check(reseeded(changed, 43))


def test_what_is_no_run_is_left_alone(tmp_path, spec):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ConflictError, match=r"thesis\.tex"):
        RunDirectory(tmp_path).check(spec)


def test_a_file_is_no_directory_of_a_run(tmp_path, spec):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(ConflictError, match="is a file, not a directory"):
        RunDirectory(tmp_path / "run").check(spec)


def test_a_directory_of_one_run_takes_no_others_inside(tmp_path, spec):
    directory = RunDirectory(tmp_path)
    directory.check_holds_no_run()
    directory.reserve(spec)
    with pytest.raises(ConflictError):
        directory.check_holds_no_run()


def test_two_cannot_hold_one_directory(tmp_path):
    busy = pytest.raises(PreconditionError, match="another process")
    with hold(tmp_path), busy, hold(tmp_path):
        pass
    with hold(tmp_path):
        pass


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="file"), hold(tmp_path / "file" / "run"):
        pass


def test_a_new_directory_that_stays_empty_is_removed(tmp_path):
    with hold(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    for name in ("old", "used"):
        with hold(tmp_path / name):
            (tmp_path / name / "file").touch()
        assert (tmp_path / name / "file").exists()


def test_a_lock_is_read_in_a_read_only_directory(tmp_path, monkeypatch):
    with hold(tmp_path):
        pass
    real = os.open

    def refuse(path, flags, *rest, **named):
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, flags, *rest, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        assert not is_held(tmp_path)
    with hold(tmp_path), monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        assert is_held(tmp_path)
    assert not is_held(tmp_path)
