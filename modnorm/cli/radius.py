"""Files and output of the commands that choose a radius."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.cli.console import emit_json, note, say, stdout
from modnorm.cli.options import settings
from modnorm.files import write_file

if TYPE_CHECKING:
    from rich.table import Table

    from modnorm.radius.artifact_schema import GridDocument, MatchingDocument

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Directory of the artifact [default: runs/SPEC-COMMAND].",
    ),
]
RESUMES = "stopped; the same command resumes here"
"""Remark of an interrupted command."""


def home_of(spec_file: Path, command: str, out: Path | None) -> Path:
    """Return the directory of an artifact, beside the default directory of the run."""
    return out or Path("runs") / f"{spec_file.stem}-{command}"


@contextmanager
def held(out: Path) -> Iterator[None]:
    """Lock the directory of an artifact, which must not be a run directory.

    The cache directory, which keeps the artifact too, must be writable.
    """
    from modnorm.client.rundir import RunDirectory, hold

    RunDirectory(out).check_holds_no_run()
    settings().check_cache()
    with hold(out):
        yield


def conclude(
    document: "GridDocument | MatchingDocument", shown: "Table", out: Path, *, as_json: bool
) -> None:
    """Write `radius.json` and `radius.png`, store the artifact, show it."""
    from modnorm.analysis.radius import draw_radius
    from modnorm.client.radius import keep_artifact
    from modnorm.radius.artifact import RadiusArtifact

    artifact, file = RadiusArtifact.of(document), out / "radius.json"
    write_file(file, artifact.to_json().encode())
    write_file(out / "radius.png", draw_radius(document))
    keep_artifact(artifact, settings().cache)
    if as_json:
        emit_json({"digest": artifact.digest, "artifact": json.loads(artifact.to_json())})
        return
    stdout().print(shown)
    stdout().print(f"radius {document.radius:g}  {artifact.digest}")
    say(f"written to {file}")
    if edge := _edge(document):
        note(edge)


def _edge(document: "GridDocument | MatchingDocument") -> str | None:
    """Return a remark if the best radius is the first or the last that was tried."""
    tried = [one.radius for one in document.radii]
    if len(tried) < 2 or document.radius not in {tried[0], tried[-1]}:
        return None
    end = "smallest" if document.radius == tried[0] else "largest"
    return f"{document.radius:g} is the {end} radius that was tried; a wider grid may find better"
