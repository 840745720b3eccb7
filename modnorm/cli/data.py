"""`modnorm data`: the rows of the paper's benchmarks listed, fetched and checked."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.cli.console import echo, emit_json, interruptible, output, say
from modnorm.cli.options import arg, opt, settings
from modnorm.errors import InvalidInputError, ModnormError, NotFoundError
from modnorm.host import expand_home

if TYPE_CHECKING:
    from modnorm.tasks.catalogue import Dataset
    from modnorm.tasks.splits import DataManifest, Origin

_DEFAULT = "[default: data in MODNORM_CACHE_DIR, ~/.cache/modnorm]"
Tasks = Annotated[list[str] | None, arg("TASK", "Tasks of the paper by name.")]
All = Annotated[bool, opt("--all", "All tasks instead of those named.")]
Folder = Annotated[Path | None, opt("--folder FOLDER", f"Folder of data {_DEFAULT}.")]


def list_splits(*, folder: Folder = None) -> None:
    """List the named splits, their origins and local files."""
    from modnorm.tasks.catalogue import DATASETS
    from modnorm.tasks.splits import Origin

    place = _folder(folder)
    listed = {task: list(_entries(data, place)) for task, data in DATASETS.items()}
    if emit_json([entry for entries in listed.values() for entry in entries]):
        return
    for task, entries in listed.items():
        data = DATASETS[task]
        home = data.url or "not public"
        if data.hub is not None:
            pinned = Origin(source=data.hub, config=data.config, revision=data.revision)
            home = f"{_origin(pinned)}{'' if data.revision else ', not pinned'}"
        echo(f"{task}: {home}; {data.licence}")
        for entry in entries:
            name = f"split:{entry['split']}"
            echo(f"  {name:29}{entry['rows']:>6,} rows  {entry['state']:8}{entry['rule']}")
    say(f"folder: {place}")


def fetch_splits(
    tasks: Tasks = None,
    *,
    every: All = False,
    to: Annotated[Path | None, opt("--to FOLDER", f"Folder to write {_DEFAULT}.")] = None,
    source: Annotated[
        Path | None,
        opt(
            "--from FOLDER",
            "Folder with the data sets' own files, or a fetched folder, to read instead of "
            "the public origins.",
        ),
    ] = None,
) -> None:
    """Write all splits of tasks into a folder.

    A manifest there holds counts and hashes.

    Valid files stay as they are; damaged files are replaced.
    """
    from modnorm.tasks.data_fetch import fetch

    place = _folder(to)
    source = expand_home(source, "from") if source is not None else None
    names = _fetchable(place, source) if every and not tasks else _named(tasks, every=every)
    documents = []
    with interruptible("stopped; no file is half written, the same command resumes here"):
        for task in names:
            manifest, written = fetch(task, place, source=source)
            documents.append({"written": written, **manifest.model_dump(mode="json")})
            origin = _origin(manifest.origin)
            done = f"fetched from {origin}" if written else "already there and sound"
            echo(f"{task}: {done}; {place / task}")
            _echo_splits(manifest)
    emit_json(documents)


def check_splits(tasks: Tasks = None, *, every: All = False, folder: Folder = None) -> None:
    """Check the data in a folder against their manifests and the catalogue.

    Files of a data set without a manifest must hold the catalogue's rows. The exit code is 2 if a
    named task is absent, a file is missing, or content was changed. --all checks the tasks in the
    folder and lists the absent ones, since some are not public. Name the tasks that must be there.
    """
    place = _folder(folder)
    documents = [
        document
        for task in _named(tasks, every=every)
        if (document := _check(task, place, every=every)) is not None
    ]
    if not documents:
        raise NotFoundError(
            f"{place} has no data of any task", field="folder", remedy="modnorm data fetch --all"
        )
    emit_json(documents)
    if not all(document["sound"] for document in documents):
        raise typer.Exit(2)


def _check(task: str, place: Path, *, every: bool) -> dict[str, object] | None:
    """Check a task and print the verdict; None if it is absent and was not named."""
    from modnorm.tasks.data_fetch import check

    try:
        manifest, is_fetched = check(task, place)
    except ModnormError as error:
        absent = every and isinstance(error, NotFoundError)
        if not output.as_json:
            say(f"{task}: absent" if absent else f"error: {error}")
        return None if absent else {"task": task, "sound": False, "error": str(error)}
    how = f"fetched from {_origin(manifest.origin)}"
    echo(f"{task}: sound, {how if is_fetched else 'own files of the data set'}")
    _echo_splits(manifest)
    document = manifest.model_dump(mode="json")
    return {"sound": True, "fetched": is_fetched, **document}


def _folder(path: Path | None) -> Path:
    return settings().fetched_folder if path is None else expand_home(path, "to")


def _named(tasks: Sequence[str] | None, *, every: bool) -> list[str]:
    from modnorm.tasks.catalogue import DATASETS, find_task

    if bool(tasks) == every:
        raise InvalidInputError(
            "name tasks, or give --all", field="task", remedy=f"any of {', '.join(DATASETS)}"
        )
    return [find_task(task).task for task in dict.fromkeys(tasks or DATASETS)]


def _fetchable(place: Path, source: Path | None) -> list[str]:
    """Return the tasks that can be fetched, and print those that cannot."""
    from modnorm.tasks.catalogue import DATASETS
    from modnorm.tasks.splits import remedy

    names = []
    for task, data in DATASETS.items():
        if source is not None and not (source / task).is_dir():
            say(f"{task}: left out, not in {source}")
        elif source is None and not data.is_public and not (place / task).is_dir():
            say(f"{task}: left out, not public; {remedy(data)}")
        else:
            names.append(task)
    if not names:
        raise InvalidInputError(f"{source} has no data of any task", field="from")
    return names


def _entries(data: "Dataset", place: Path) -> Iterator[dict[str, object]]:
    from modnorm.tasks.splits import split_from_folder

    for name, split in data.splits.items():
        try:
            stored = split_from_folder(data, name, place, field="folder")
            state = "absent" if stored is None else "here"
        except InvalidInputError:
            state = "damaged"
        yield {
            "split": f"{data.task}/{name}",
            "rows": split.rows,
            "digest": split.digest,
            "rule": split.rule,
            "licence": data.licence,
            "source": data.hub or data.url,
            "config": data.config,
            "revision": data.revision,
            "state": state,
        }


def _origin(origin: "Origin") -> str:
    config = f" ({origin.config})" if origin.config else ""
    return f"{origin.source}{config}{f' at {origin.revision}' if origin.revision else ''}"


def _echo_splits(manifest: "DataManifest") -> None:
    from modnorm.tasks.catalogue import find_task

    splits = find_task(manifest.task).splits
    for record in manifest.splits:
        known = splits[record.name.partition("/")[2]].digest is not None
        remark = "" if known else "  not compared: the catalogue knows no digest"
        figures = f"{record.rows:>6,} rows  sha256 {record.sha256}"
        echo(f"  {record.name:23}{figures}  {record.file}{remark}")


COMMANDS = {"list": list_splits, "fetch": fetch_splits, "check": check_splits}
