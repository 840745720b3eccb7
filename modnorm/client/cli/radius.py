"""What the commands that choose a radius leave and show."""

import json
from pathlib import Path

from rich.table import Table

from modnorm.client.cli.console import emit_json, stderr, stdout
from modnorm.client.cli.options import settings
from modnorm.client.radius import keep_artifact
from modnorm.radius.artifact import RadiusArtifact
from modnorm.radius.schema import GridDocument, MatchingDocument


def conclude(artifact: RadiusArtifact, shown: Table, out: Path, *, as_json: bool) -> None:
    """Write `radius.json` and `radius.png`, keep the artifact, show it.

    Args:
        artifact: The artifact.
        shown: Its table for people.
        out: Directory, which exists.
        as_json: Write the artifact to stdout instead of the table.
    """
    from modnorm.analysis.files import write_file
    from modnorm.analysis.radius import draw_radius

    file = out / "radius.json"
    write_file(file, artifact.to_json().encode())
    write_file(out / "radius.png", draw_radius(artifact.document))
    keep_artifact(artifact, settings().cache_dir)
    if as_json:
        emit_json({"digest": artifact.digest, "artifact": json.loads(artifact.to_json())})
        return
    stdout().print(shown)
    stdout().print(f"radius {artifact.document.radius:g}  {artifact.digest}")
    stderr().print(f"written to {file}", soft_wrap=True)
    if note := _edge(artifact.document):
        stderr().print(f"note: {note}", soft_wrap=True)


def _edge(document: GridDocument | MatchingDocument) -> str | None:
    """Return a remark when a better radius may lie outside of those that were tried."""
    tried = [one.radius for one in document.radii]
    if len(tried) < 2 or document.radius not in {tried[0], tried[-1]}:
        return None
    end = "smallest" if document.radius == tried[0] else "largest"
    return f"{document.radius:g} is the {end} radius that was tried; a wider grid may find better"
