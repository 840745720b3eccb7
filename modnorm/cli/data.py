"""`modnorm data`: the rows of the paper's benchmarks listed, fetched and checked."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.cli.console import echo, emit_json, interruptible, output, say
from modnorm.cli.options import arg, opt, settings
from modnorm.errors import InvalidInputError, ModnormError, NotFoundError
from modnorm.host import expand_home

if TYPE_CHECKING:
    from modnorm.tasks.catalogue import Dataset
    from modnorm.tasks.splits import LoadedSplit

_DEFAULT = "[default: data in MODNORM_CACHE_DIR, ~/.cache/modnorm]"
Tasks = Annotated[list[str] | None, arg("TASK", "Tasks of the paper by name.")]
All = Annotated[bool, opt("--all", "All tasks instead of those named.")]
Folder = Annotated[Path | None, opt("--folder FOLDER", f"Folder of data {_DEFAULT}.")]


def list_splits(*, folder: Folder = None) -> None:
    """List the named splits, their origins and local files."""
    from modnorm.tasks.catalogue import DATASETS

    place = _folder(folder, "folder")
    listed = {task: list(_entries(data, place)) for task, data in DATASETS.items()}
    if emit_json([entry for entries in listed.values() for entry in entries]):
        return
    for task, entries in listed.items():
        data = DATASETS[task]
        echo(f"{task}: {_home(data)}; {data.licence}")
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

    Files with the catalogue's rows stay as they are; others are replaced. Of USPTO-50K and
    ROCStories the catalogue knows only the number of rows: a changed row stays.
    """
    from modnorm.tasks.data_fetch import fetch

    place = _folder(to, "to")
    source = expand_home(source, "from") if source is not None else None
    wanted = _fetchable(place, source) if every and not tasks else _named(tasks, every=every)
    documents = []
    with interruptible("stopped; no file is half written, the same command resumes here"):
        for data in wanted:
            splits, written = fetch(data.task, place, source=source)
            documents.append({"written": written, **_document(data, splits)})
            done = f"fetched from {source or _home(data)}" if written else "already there"
            echo(f"{data.task}: {done}, {_verdict(data, splits)}; {place / data.task}")
            _echo_splits(data, splits)
    emit_json(documents)


def check_splits(tasks: Tasks = None, *, every: All = False, folder: Folder = None) -> None:
    """Check that the data in a folder have the catalogue's rows.

    The exit code is 2 if a named task is absent, a file is missing, or rows were changed. Of
    USPTO-50K and ROCStories only the number of rows is known, not their content. --all checks the
    tasks in the folder and lists the absent ones, since some are not public. Name the tasks that
    must be there.
    """
    place = _folder(folder, "folder")
    documents = [
        document
        for data in _named(tasks, every=every)
        if (document := _check(data, place, every=every)) is not None
    ]
    if not documents:
        raise NotFoundError(
            f"{place} has no data of any task", field="folder", remedy="modnorm data fetch --all"
        )
    emit_json(documents)
    if any("error" in document for document in documents):
        raise typer.Exit(2)


def _check(data: "Dataset", place: Path, *, every: bool) -> dict[str, object] | None:
    """Check the data of a task and print the verdict; None if absent and not named."""
    from modnorm.tasks.data_fetch import check

    try:
        splits = check(data.task, place)
    except ModnormError as error:
        absent = every and isinstance(error, NotFoundError)
        if not output.as_json:
            say(f"{data.task}: absent" if absent else f"error: {error}")
        return None if absent else {"task": data.task, "sound": False, "error": str(error)}
    echo(f"{data.task}: {_verdict(data, splits)}")
    _echo_splits(data, splits)
    return {"sound": _is_known(data) or None, **_document(data, splits)}


def _folder(path: Path | None, field: str) -> Path:
    return settings().fetched_folder if path is None else expand_home(path, field)


def _named(tasks: Sequence[str] | None, *, every: bool) -> "list[Dataset]":
    from modnorm.tasks.catalogue import DATASETS, find_task

    if bool(tasks) == every:
        raise InvalidInputError(
            "name tasks, or give --all", field="task", remedy=f"any of {', '.join(DATASETS)}"
        )
    return [find_task(task) for task in dict.fromkeys(tasks or DATASETS)]


def _fetchable(place: Path, source: Path | None) -> "list[Dataset]":
    """Return the data that can be fetched, and print the tasks whose data cannot."""
    from modnorm.tasks.catalogue import DATASETS
    from modnorm.tasks.splits import remedy

    found = []
    for task, data in DATASETS.items():
        if source is not None and not (source / task).is_dir():
            say(f"{task}: left out, not in {source}")
        elif source is None and not data.is_public and not (place / task).is_dir():
            say(f"{task}: left out, not public; {remedy(data)}")
        else:
            found.append(data)
    if not found:
        raise InvalidInputError(f"{source} has no data of any task", field="from")
    return found


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


def _home(data: "Dataset") -> str:
    """Return the public origin of a data set."""
    if data.hub is None:
        return data.url or "not public"
    config = f" ({data.config})" if data.config else ""
    return f"{data.hub}{config}{f' at {data.revision}' if data.revision else ', not pinned'}"


def _document(data: "Dataset", splits: "Mapping[str, LoadedSplit]") -> dict[str, object]:
    listed = [
        {
            "name": f"{data.task}/{name}",
            "file": split.path.name if split.path else None,
            "rows": len(split.rows),
            "digest": split.digest,
            "taken_from": split.taken_from,
        }
        for name, split in splits.items()
    ]
    return {"task": data.task, "splits": listed}


def _is_known(data: "Dataset") -> bool:
    """Whether the catalogue knows the content of a task's rows."""
    return all(split.digest for split in data.splits.values())


def _verdict(data: "Dataset", splits: "Mapping[str, LoadedSplit]") -> str:
    rows = sum(len(split.rows) for split in splits.values())
    return "sound" if _is_known(data) else f"{rows:,} rows, content not known"


def _echo_splits(data: "Dataset", splits: "Mapping[str, LoadedSplit]") -> None:
    for name, split in splits.items():
        known = data.splits[name].digest
        remark = "" if known else "  not compared: the catalogue knows no digest"
        figures = f"{len(split.rows):>6,} rows  digest {split.digest}"
        echo(f"  {f'{data.task}/{name}':23}{figures}  {split.taken_from}{remark}")


COMMANDS = {"list": list_splits, "fetch": fetch_splits, "check": check_splits}
