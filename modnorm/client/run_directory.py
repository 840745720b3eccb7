"""The directory of a run: its lock, and the spec that it belongs to."""

import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from modnorm.analysis.run_files import DISTILLATION, PLOTS, RESULTS, SPEC, STATE, rescored_file
from modnorm.errors import LONGEST, ConflictError, InvalidInputError, PreconditionError
from modnorm.files import encode_json, partial_path, read_fault, write_fault, write_file
from modnorm.host import is_utf8
from modnorm.locks import is_locked, locked, require_locks
from modnorm.spec import ExperimentSpec
from modnorm.spec.reading import differences

_LOCK = ".lock"
_LAST = (RESULTS, DISTILLATION)
"""Files that are written last, of a search and of a distillation."""
_LOCK_SECONDS = 0.2
"""Longer than `is_held` takes in another process."""


def state_directory(path: Path) -> Path:
    """Return where an embedded lab that works in `path` keeps its database and logs."""
    return path / STATE


def lock_file(path: Path) -> Path:
    """Return the file that a process holds while it works in a directory."""
    return path / _LOCK


class RunDirectory:
    """The files of one run: the spec from its start, results and report at its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._spec = path / SPEC
        self._results = [path / name for name in _LAST]

    def check(self, spec: ExperimentSpec) -> None:
        """Make sure that nothing else is in the directory.

        The name, the limits of failures, N, the prefixes and the K list may change: finished
        evaluations are reused.
        """
        if self._spec.exists():
            there, here = _read(self._spec), spec.fixed.model_dump(mode="json")
            with suppress(ValueError):  # of another version: its differences are named
                stored = ExperimentSpec.model_validate(there)
                there = stored.fixed.model_dump(mode="json")
            for name, (old, new) in differences(there, here).items():
                is_edited = name == "task.declaration" and old and new
                raise ConflictError(
                    f"{self.path} holds a run of another spec: "
                    + (
                        "the task file has changed since that run"
                        if is_edited
                        else f"{_brief(old)} there, {_brief(new)} here"
                    ),
                    field=name,
                    remedy="name another directory with --out",
                )
        elif self.path.exists() and not self.path.is_dir():
            raise ConflictError(
                f"{self.path} is a file, not a directory",
                field="out",
                remedy="name another directory with --out",
            )
        elif self.path.exists():
            self._check_strangers()

    def has_results_of(self, spec: ExperimentSpec) -> bool:
        """Return whether the directory holds the results of exactly this spec."""
        if not self.has_results or not self._spec.exists():
            return False
        return not differences(_read(self._spec), spec.model_dump(mode="json"))

    @property
    def has_results(self) -> bool:
        return any(path.exists() for path in self._results)

    def reserve(self, spec: ExperimentSpec) -> None:
        """Store the spec, unless the directory has results, which stay until `renew`.

        Call it only once the spec is validated.
        """
        if not self.has_results:
            self.renew(spec)

    def renew(self, spec: ExperimentSpec) -> None:
        """Store the spec, and remove the results of another one.

        Call it once the results of the spec are available.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.has_results_of(spec):
            for path in (*self._results, *self.path.glob(rescored_file("*"))):
                path.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                shutil.rmtree(self.path / PLOTS)
        write_file(self._spec, encode_json(spec.model_dump(mode="json")))

    def check_holds_no_run(self) -> None:
        """Make sure that directories of runs can lie inside this one."""
        if self._spec.exists():
            raise ConflictError(
                f"{self.path} holds the run of a single spec",
                field="out",
                remedy="name another directory with --out",
            )

    def _check_strangers(self) -> None:
        ours = {_LOCK, STATE, partial_path(self._spec).name}
        strangers = {entry.name for entry in self.path.iterdir()} - ours
        if strangers:
            raise ConflictError(
                f"{self.path} is not empty and holds no run ({min(strangers)})",
                field="out",
                remedy="name an empty or a new directory",
            )


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Make a directory and keep it for this process; remove it if it was new and stays empty."""
    if not is_utf8(str(path.absolute())):
        raise InvalidInputError(
            f"the path is not UTF-8: {str(path.absolute())!a}",
            field="out",
            remedy="use names in UTF-8, under a locale of UTF-8 such as LC_ALL=C.UTF-8",
        )
    is_new, began = not path.exists(), time.monotonic()

    def poll() -> None:
        if time.monotonic() - began > _LOCK_SECONDS:
            raise PreconditionError(
                f"another process works on {path}", field="out", remedy="wait for it to end"
            )

    with ExitStack() as stack:
        try:
            path.mkdir(parents=True, exist_ok=True)
            require_locks(path, "out")
            stack.enter_context(locked(lock_file(path), poll))
        except OSError as error:
            raise write_fault(path, error) from error
        except InvalidInputError:
            if is_new:
                path.rmdir()
            raise
        if is_new:
            stack.callback(_remove_empty, path)
        yield


def is_held(directory: Path) -> bool:
    """Return whether a process works on a directory, which may be read-only here."""
    return is_locked(lock_file(directory))


def _remove_empty(path: Path) -> None:
    """Remove a directory that holds the lock alone."""
    if [entry.name for entry in path.iterdir()] == [_LOCK]:
        lock_file(path).unlink()
        path.rmdir()


def _read(path: Path) -> Mapping[str, object]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConflictError(f"cannot read {path}: {read_fault(error)}", field="out") from error
    if not isinstance(found, dict):
        raise ConflictError(f"{path} is not a spec", field="out")
    return found


def _brief(value: object) -> str:
    """Return a value for an error message; a long text, such as a task file, by its digest."""
    if isinstance(value, str) and (len(value) > LONGEST or "\n" in value):
        return f"a text with the SHA-256 {hashlib.sha256(value.encode()).hexdigest()[:16]}..."
    return repr(value)
