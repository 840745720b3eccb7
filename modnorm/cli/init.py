"""`modnorm init`: a spec to start from."""

from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.console import emit_json
from modnorm.cli.options import Json
from modnorm.errors import ConflictError
from modnorm.files import write_fault, write_file

_TEMPLATE = Path(__file__).parents[1] / "bundled" / "spec.yaml"

File = Annotated[Path, typer.Argument(metavar="[FILE]", help="Where the spec goes.")]


def init(file: File = Path("spec.yaml"), *, as_json: Json = False) -> None:
    """Write a commented spec that runs as it is.

    It searches around the bundled model, without a network or a GPU. Its comments explain each
    field.
    """
    text = _TEMPLATE.read_text(encoding="utf-8").replace("FILE", str(file))
    text = text.replace(f"runs/{file}", f"runs/{file.stem}")
    if file.exists():
        raise ConflictError(
            f"{file} exists", field="file", remedy="name a new file, or remove this one"
        )
    try:
        write_file(file, text.encode())
    except OSError as error:
        raise write_fault(file, error, "file") from error
    if as_json:
        emit_json({"file": str(file)})
        return
    typer.echo(f"{file} is written; next: modnorm run {file}")
