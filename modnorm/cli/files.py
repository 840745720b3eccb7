"""Files that commands write."""

from pathlib import Path

from modnorm.errors import InvalidInputError


def check_writable(out: Path) -> None:
    """Refuse a file that cannot be written before minutes of work go into it.

    Raises:
        InvalidInputError: it cannot be written.
    """
    existed = out.exists()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.open("a").close()
        if not existed:
            out.unlink()
    except OSError as error:
        raise InvalidInputError(f"cannot write {out}: {error.strerror}", field="out") from error
