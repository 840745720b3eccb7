"""Check of a command's output file before its work."""

from pathlib import Path

from modnorm.errors import InvalidInputError
from modnorm.files import check_writable


def check_output_file(out: Path, *inputs: Path, field: str = "out") -> None:
    """Refuse an output file that cannot be written, or that would replace a file in use.

    Args:
        out: The file; it need not exist.
        inputs: Files that the command reads; paths without a file are ignored.
        field: Name of the option, for errors.

    Raises:
        InvalidInputError: the file cannot be written, is an input, or belongs to a run.
        UnavailableError: the disk is full or broken.
    """
    from modnorm.analysis.run_folders import run_that_owns

    if any(out.exists() and each.exists() and out.samefile(each) for each in inputs):
        raise InvalidInputError(
            f"{out} is an input of this command", field=field, remedy="name another file"
        )
    run = run_that_owns(out)
    if run is not None:
        raise InvalidInputError(
            f"{out} is a file of the run in {run}",
            field=field,
            remedy="name another file, or one outside the run's directory",
        )
    check_writable(out, field)
