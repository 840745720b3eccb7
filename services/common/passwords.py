"""Passwords from files, which keeps them out of environments and process lists."""

from pathlib import Path
from urllib.parse import quote, urlsplit

from modnorm.errors import InvalidInputError


def add_password(url: str, file: Path, *, field: str) -> str:
    """Return a URL with the password of a file.

    Args:
        url: `SCHEME://[USER@]HOST[...]`.
        file: File with the password; surrounding white space is ignored.
        field: Name of the setting, for errors.

    Raises:
        InvalidInputError: the file cannot be read or is empty, or the URL has a password.
    """
    parts = urlsplit(url)
    if parts.password is not None:
        raise InvalidInputError(
            "the URL and a file both contain a password", field=field, remedy="remove one of them"
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
            remedy="name a file that this user can read",
        ) from error
    if not password:
        raise InvalidInputError(f"{file} is empty", field=field, remedy="write the password to it")
    return password
