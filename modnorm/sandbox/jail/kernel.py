"""System calls without a Python function."""

import ctypes
import os
import platform

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000

_MNT_DETACH = 2
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 0x1
_MOUNT_ATTR_NOSUID = 0x2

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2

_SYS_MOUNT_SETATTR = 442
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _checked(result: int, name: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


_Argument = int | ctypes.Structure | bytes | None


def _passed(argument: _Argument) -> object:
    if isinstance(argument, ctypes.Structure):
        return ctypes.byref(argument)
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def syscall(name: str, number: int, *arguments: _Argument) -> int:
    """Make a system call by number."""
    return _checked(_libc.syscall(*map(_passed, (number, *arguments))), name)


def prctl(option: int, *arguments: _Argument) -> int:
    """Operate on the calling process; unused arguments are zero."""
    zeros = (0,) * (4 - len(arguments))
    return _checked(_libc.prctl(option, *map(_passed, (*arguments, *zeros))), f"prctl {option}")


def forbid_new_privileges() -> None:
    """Prevent later executions from gaining privileges (set-uid files, file capabilities)."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def die_with_parent(signal_number: int) -> None:
    """Make the kernel kill this process when its parent dies; a change of uid cancels this."""
    prctl(_PR_SET_PDEATHSIG, signal_number)


def install_filter(program: bytes) -> None:
    """Install a seccomp filter in the calling thread, irrevocably."""
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _FilterProgram(len(program) // 8, program))


def drop_capabilities() -> None:
    """Empty the effective, permitted and inheritable sets of the calling thread."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    empty = (ctypes.c_uint32 * 6)()
    _checked(_libc.capset(header, empty), "capset")


def unshare(flags: int) -> None:
    """Leave namespaces that are shared with other processes (`os.unshare` needs Python 3.12)."""
    _checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system."""
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags))
    _checked(_libc.mount(*arguments, options.encode()), f"mount {target}")


def make_read_only(target: str, *, recursive: bool) -> None:
    """Make a mount, and with `recursive` all mounts below it, read-only and nosuid."""
    attributes = _MountAttributes(attr_set=_MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID)
    flags = _AT_RECURSIVE if recursive else 0
    size = ctypes.sizeof(attributes)
    name = f"mount_setattr {target}"
    syscall(name, _SYS_MOUNT_SETATTR, _AT_FDCWD, target.encode(), flags, attributes, size)


def enter_root(directory: str) -> None:
    """Make a mount point the root of this mount namespace and detach the old root."""
    os.chdir(directory)
    syscall("pivot_root", _SYS_PIVOT_ROOT[platform.machine()], b".", b".")
    _checked(_libc.umount2(b".", _MNT_DETACH), "umount")
    os.chdir("/")
