"""A finished experiment as one directory, which clients fetch and the page reads.

It is written from the database when it is first asked for, and kept: results never change. A
directory appears whole, by a rename, so a killed aggregator leaves none or a draft that the next
request replaces.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from sqlmodel import select

from modnorm.checkpoint.checkpoint_files import file_digest
from modnorm.errors import NotFoundError, PreconditionError
from modnorm.files import file_fault
from modnorm.services.aggregator.experiments.experiment_store import ExperimentStore
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.lookups import find_experiment
from modnorm.services.aggregator.storage.tables import TERMINAL, Experiment, ExperimentState
from modnorm.services.common.bounded_dict import BoundedDict
from modnorm.v1.experiment_pb2 import RunFile
from modnorm.wire.run_messages import with_remedy

_KEPT = 64
"""Directories whose digests are kept."""


class RunDirectories:
    """The directories of finished experiments; used by several threads."""

    def __init__(self, root: Path, database: Database) -> None:
        self._root = root
        self._database = database
        self._experiments = ExperimentStore(database)
        self._writing = Lock()
        self._files: BoundedDict[Path, Sequence[RunFile]] = BoundedDict(_KEPT)

    def of(self, experiment_id: str) -> Path:
        """Return the directory of a finished experiment; the first call writes it."""
        with self._database.read() as session:
            experiment = find_experiment(session, experiment_id)
        if experiment.state is not ExperimentState.SUCCEEDED:
            reason = with_remedy(experiment.error, experiment.remedy)
            raise PreconditionError(
                "only an experiment that succeeded has results, and this one is "
                f"{experiment.state.lower()}{reason and f': {reason}'}",
                field="run",
                remedy="its spec, run or submitted again, reuses the finished work"
                if experiment.state in TERMINAL
                else "`modnorm watch` follows it to its end",
            )
        place = self._root / _name(experiment.id, experiment.create_time)
        if not place.is_dir():
            with self._writing:
                if not place.is_dir():
                    self._write(experiment_id, place)
        return place

    def files(self, experiment_id: str) -> Sequence[RunFile]:
        """Return the files of the directory of a finished experiment, by name; errors as `of`."""
        place = self.of(experiment_id)
        if (files := self._files.get(place)) is None:
            files = self._files[place] = [
                RunFile(
                    name=path.relative_to(place).as_posix(),
                    size=path.stat().st_size,
                    digest=file_digest(path),
                )
                for path in sorted(place.rglob("*"))
                if path.is_file()
            ]
        return files

    def file(self, experiment_id: str, name: str) -> Path:
        """Return a file of the directory of a finished experiment; errors as `of`."""
        if all(file.name != name for file in self.files(experiment_id)):
            raise NotFoundError(f"the run has no file {name[:80]!r}", field="name")
        return self.of(experiment_id) / name

    def remove_unknown(self) -> None:
        """Remove the directories of experiments that were removed."""
        with self._database.read() as session:
            keys = session.exec(select(Experiment.id, Experiment.create_time)).all()
        known = {_name(*key) for key in keys}
        places = self._root.iterdir() if self._root.is_dir() else ()
        for place in places:
            if place.name.removeprefix(".").removesuffix(".part") not in known:
                shutil.rmtree(place, ignore_errors=True)

    def _write(self, experiment_id: str, place: Path) -> None:
        from modnorm.services.aggregator.experiments.run_writing import (  # noqa: PLC0415
            write_directory,  # loads pandas and matplotlib
        )

        draft = place.with_name(f".{place.name}.part")
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir(parents=True)
            write_directory(draft, self._database, self._experiments.get(experiment_id))
            self._files.pop(place, None)
            draft.replace(place)
        except OSError as error:  # for example a full disk
            shutil.rmtree(draft, ignore_errors=True)
            raise file_fault(error) from error


def _name(experiment_id: str, create_time: float) -> str:
    """Return the name of a directory: an id that is used again has another time."""
    return f"{experiment_id}-{int(create_time * 1e6)}"
