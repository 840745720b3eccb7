"""Landlock: a process gives up file, network and signal rights permanently.

https://docs.kernel.org/userspace-api/landlock.html
"""

import ctypes
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from modnorm.sandbox.jail import kernel

_SYS_CREATE_RULESET = 444
_SYS_ADD_RULE = 445
_SYS_RESTRICT_SELF = 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
REMOVE_DIR = 1 << 4
REMOVE_FILE = 1 << 5
MAKE_DIR = 1 << 7
MAKE_REG = 1 << 8
TRUNCATE = 1 << 14

READ = READ_FILE | READ_DIR
WRITE = WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | TRUNCATE

_FILE_RIGHTS = WRITE_FILE | READ_FILE | TRUNCATE
_FS_RIGHTS_OF_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of file rights of each version; later versions have those of version 5."""
_NETWORK_RIGHTS = 0b11
_SCOPES = 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("fs", ctypes.c_uint64),
        ("net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def abi() -> int:
    """Return the version of Landlock that the kernel offers, 0 for none."""
    try:
        return kernel.syscall(
            "landlock_create_ruleset", _SYS_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION
        )
    except OSError:
        return 0


def restrict(rules: Iterable[tuple[str, int]]) -> None:
    """Give up all rights that Landlock controls, except the listed ones.

    TCP is included from version 4, signals and abstract sockets of others from version 6.

    Args:
        rules: Paths and the rights beneath them. Paths that do not exist are skipped.

    Raises:
        OSError: the kernel refused.
    """
    version = abi()
    file_rights = (1 << _FS_RIGHTS_OF_ABI[min(version, 5)]) - 1
    attributes = _Ruleset(
        fs=file_rights,
        net=_NETWORK_RIGHTS if version >= 4 else 0,
        scoped=_SCOPES if version >= 6 else 0,
    )
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = kernel.syscall("landlock_create_ruleset", _SYS_CREATE_RULESET, attributes, size, 0)
    for path, rights in rules:
        _allow(ruleset, path, rights & file_rights)
    kernel.syscall("landlock_restrict_self", _SYS_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    if not Path(path).exists():
        return
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not stat.S_ISDIR(os.fstat(parent).st_mode):
        rights &= _FILE_RIGHTS
    rule = _PathBeneath(allowed=rights, parent_fd=parent)
    kernel.syscall("landlock_add_rule", _SYS_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
    os.close(parent)
