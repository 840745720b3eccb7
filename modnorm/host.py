"""The surroundings of a process: its home, its encoding, the proxies of its environment."""

import os
from pathlib import Path

from modnorm.errors import InvalidInputError

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def exempt_loopback() -> None:
    """Exempt loopback from the proxies of the environment, which are for downloads.

    This is for HTTP clients inside libraries: collectors of traces, trackers and mirrors of the
    Hub may listen there. Channels of gRPC have an option.
    """
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return
    from urllib.request import getproxies_environment  # noqa: PLC0415 - takes 20 ms

    proxies = getproxies_environment()
    exempt = proxies.pop("no", "")
    if proxies and exempt != "*":
        names = dict.fromkeys([*filter(None, exempt.split(",")), *_LOOPBACK])
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(names)


def is_utf8(text: str) -> bool:
    """Return whether an argument, variable or path has the bytes of UTF-8.

    Libraries take paths as UTF-8. They would miss files of an undecodable name, and under a locale
    such as Latin-1 all files with other letters than those of ASCII.
    """
    try:
        return os.fsencode(text) == text.encode()
    except UnicodeEncodeError:
        return False


def default_cache() -> Path:
    """Return the cache directory of a user who sets none."""
    try:
        return Path.home() / ".cache" / "modnorm"
    except RuntimeError as error:
        raise InvalidInputError(
            "it is not set, and this user has no home directory",
            field="MODNORM_CACHE_DIR",
            remedy="set it to a directory that can be written",
        ) from error


def expand_home(path: Path, field: str) -> Path:
    """Return a path with `~` or `~user` at its start replaced by the home directory."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        home = path.parts[0]
        raise InvalidInputError(
            f"{path}: there is no home directory {home}",
            field=field,
            remedy="name a directory that does not start with ~",
        ) from error
