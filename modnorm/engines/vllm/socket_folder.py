"""A folder for the socket files of vLLM's queues, which goes away with its process.

vLLM names each socket in the temporary directory, and ZeroMQ never removes the file.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

VARIABLE = "VLLM_RPC_BASE_PATH"
"""vLLM's variable for the folder; vLLM has no setting for it, and workers inherit it."""
_PREFIX, _DRAFT = "modnorm-sockets-", ".modnorm-sockets-"
_MOST_BYTES = 107 - len(f"/{_PREFIX}12345678/{uuid.uuid4()}")
"""Bytes of the temporary directory's path. Linux allows 107 for the path of a socket."""


def use_socket_folder() -> None:
    """Let vLLM make the sockets of this process and its workers in a private folder."""
    temporary = Path(tempfile.gettempdir())
    is_set = VARIABLE in os.environ  # noqa: TID251 - vLLM reads it there
    if is_set or len(os.fsencode(temporary)) > _MOST_BYTES:
        return
    _remove_left_folders(temporary)
    try:
        folder = _make_folder(temporary)
    except OSError:  # for example on a file system without locks
        return
    atexit.register(_remove, folder, os.getpid())
    os.environ[VARIABLE] = str(folder)  # noqa: TID251 - as above


def _make_folder(temporary: Path) -> Path:
    """Return a new folder that is locked until this process ends."""
    draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=temporary))
    try:
        _lock(draft)  # others remove folders of the final name that are not locked
        return draft.rename(draft.with_name(draft.name.replace(_DRAFT, _PREFIX)))
    except OSError:
        draft.rmdir()
        raise


def _lock(folder: Path) -> int:
    """Lock a folder until the returned descriptor is closed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_left_folders(temporary: Path) -> None:
    for folder in temporary.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            descriptor = _lock(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked process exits before its parent
        shutil.rmtree(folder, ignore_errors=True)
