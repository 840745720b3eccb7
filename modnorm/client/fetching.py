"""The directory of a finished experiment, fetched from its lab and checked by digest."""

import hashlib
import time
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath

from modnorm.analysis.run_files import RESULTS, SPEC
from modnorm.client.connection import (
    Connection,
    Reconnection,
    get_experiment,
    get_run_file,
    list_run_files,
)
from modnorm.client.run_directory import RunDirectory, hold
from modnorm.client.settings import ClientSettings
from modnorm.errors import ModnormError, UnavailableError
from modnorm.files import DRAFTS, own_draft, remove_old_drafts, replaced_file
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto

_KEY = 16
"""Hexadecimal digits that name the content of a directory in the cache."""


def save_run(client: Connection, experiment_id: str, directory: Path) -> None:
    """Write the directory of a finished experiment.

    Files that differ are replaced, except `spec.json`. `results.json` is written last: if it
    exists, the others are complete.
    """
    _fetch(client, experiment_id, list_run_files(client, experiment_id), directory)


def save_run_to(client: Connection, experiment_id: str, directory: Path) -> None:
    """Write the directory of a finished experiment, unless the place holds something else."""
    place = RunDirectory(directory)
    list_run_files(client, experiment_id)  # refuses one without results
    spec = spec_from_proto(get_experiment(client, experiment_id).spec)
    with hold(directory):
        place.check(spec)
        place.renew(spec)
        save_run(client, experiment_id, directory)


def cached_run(
    client: Connection, experiment_id: str, *, tables: Collection[str] | None = None
) -> Path:
    """Return the directory of a finished experiment in the cache; missing files are fetched.

    Of missing Parquet files only `tables` are, or all if None: answers take hundreds of MB.
    """
    settings = ClientSettings()
    settings.check_cache()
    files = list_run_files(client, experiment_id)
    content = "".join(f"{file.name} {file.digest}\n" for file in files)
    key = hashlib.sha256(content.encode()).hexdigest()[:_KEY]
    directory = settings.cache / "runs" / key / experiment_id
    if tables is not None:
        files = [each for each in files if each.name in tables or ".parquet" not in each.name]
    _fetch(client, experiment_id, files, directory)
    return directory


def _fetch(
    client: Connection, experiment_id: str, files: Sequence[experiments.RunFile], directory: Path
) -> None:
    remove_old_drafts(directory.rglob(DRAFTS))
    for file in sorted(files, key=lambda each: (each.name == RESULTS, each.name)):
        parts = PurePosixPath(file.name).parts
        if file.name.startswith("/") or ".." in parts:
            raise UnavailableError(f"the lab names a file outside of the run: {file.name!a}")
        place = directory.joinpath(*parts)
        is_kept = file.name == SPEC and place.is_file()
        if not is_kept and not _has(place, file):
            _fetch_file(client, experiment_id, file, place)


def _has(place: Path, file: experiments.RunFile) -> bool:
    if not place.is_file() or place.stat().st_size != file.size:
        return False
    with place.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == file.digest


def _fetch_file(
    client: Connection, experiment_id: str, file: experiments.RunFile, place: Path
) -> None:
    """Fetch a file; a broken stream is resumed at the received size."""
    place.parent.mkdir(parents=True, exist_ok=True)
    digest, received = hashlib.sha256(), 0
    connection = Reconnection(client.patience)
    with replaced_file(place, draft=own_draft(place)) as target:
        while received < file.size:
            try:
                connection.opened()
                for chunk in get_run_file(client, experiment_id, file.name, received):
                    connection.heard()
                    target.write(chunk)
                    digest.update(chunk)
                    received += len(chunk)
                if received < file.size:
                    raise UnavailableError("the stream of a file ended before the file did")
            except ModnormError as error:
                time.sleep(connection.pause(error))
        if digest.hexdigest() != file.digest:
            raise UnavailableError(
                f"{file.name} was damaged on its way", remedy="repeat the command"
            )
