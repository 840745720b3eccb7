"""Passwords from files, which no environment and no list of processes shows."""

from pathlib import Path
from urllib.parse import quote, urlsplit

from modnorm.errors import InvalidInputError


def add_password(url: str, file: Path, *, field: str) -> str:
    """Return a URL with the password of a file.

    Args:
        url: `SCHEME://[USER@]HOST[...]`.
        file: Holds the password; surrounding white space is ignored.
        field: Name of the setting, for errors.

    Raises:
        InvalidInputError: the file cannot be read or is empty, or the URL has a password.
    """
    parts = urlsplit(url)
    if parts.password is not None:
        raise InvalidInputError(
            "there is a password in the URL and one in a file", field=field, remedy="give one"
        )
    user, _, host = parts.netloc.rpartition("@")
    netloc = f"{user}:{quote(_read(file, field), safe='')}@{host}"
    return parts._replace(netloc=netloc).geturl()


def _read(file: Path, field: str) -> str:
    try:
        password = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{file} cannot be read: {error}",
            field=field,
            remedy="name a file that this user may read",
        ) from error
    if not password:
        raise InvalidInputError(f"{file} is empty", field=field, remedy="write the password to it")
    return password
