"""Confines processes: the zygote for all programs, and each program."""

import ctypes
import math
import os
import resource
import signal
import stat
from collections.abc import Iterable
from pathlib import Path

from modnorm.sandbox.jail import kernel, seccomp
from modnorm.sandbox.jail.jail_messages import JailPolicy, Mechanism, ProgramBounds

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
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


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
    """Give up all rights that Landlock controls, except the listed ones."""
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


SCRATCH = "/scratch"
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
OPEN_FILES = 64

_SHARED = kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
_FIRST_UID = 61184
_UIDS = 4000
"""systemd's range for dynamic users, which contains no account of a person or a package."""


def enter_namespaces(policy: JailPolicy) -> None:
    """Leave the host's mounts, network, IPC and host name; only readable paths stay visible."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        kernel.unshare(_SHARED)
    else:
        kernel.unshare(kernel.CLONE_NEWUSER | _SHARED)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    root = Path(policy.empty_directory)
    kernel.mount("tmpfs", str(root), "tmpfs", kernel.MS_NOSUID, "size=1m,nr_inodes=512,mode=0755")
    for path in (*policy.readable, *DEVICES):
        _show(path, root)
    (root / SCRATCH[1:]).mkdir()
    kernel.enter_root(policy.empty_directory)
    kernel.make_read_only("/", recursive=False)


def _show(path: str, root: Path) -> None:
    """Mount a path of the host read-only below the new root; links stay links."""
    target = root / path[1:]
    if not os.path.lexists(path) or os.path.lexists(target):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source = Path(path)
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return
    if source.is_dir():
        target.mkdir()
    else:
        target.touch()
    kernel.mount(path, str(target), "", kernel.MS_BIND | kernel.MS_REC)
    kernel.make_read_only(str(target), recursive=True)


def own_uid() -> int:
    """Return the uid for the program of the calling warden."""
    return _FIRST_UID + os.getpid() % _UIDS


def become(uid: int) -> None:
    """Change from root to a uid and gid without groups."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def enter_program_namespaces(bounds: ProgramBounds, uid: int) -> None:
    """Give the warden's next child its own PID namespace and working directory."""
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWPID)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    gid = os.getegid() if uid == os.geteuid() else uid
    options = f"size={bounds.scratch_bytes},nr_inodes=256,mode=0700,uid={uid},gid={gid}"
    kernel.mount("tmpfs", SCRATCH, "tmpfs", flags, options)


def restrict_files(policy: JailPolicy) -> None:
    """Let Landlock allow reads of the readable paths and writes to the scratch directory only."""
    rules = [(device, READ_FILE | WRITE_FILE) for device in DEVICES]
    if Mechanism.NAMESPACES in policy.mechanisms:
        rules += [("/", READ), (SCRATCH, READ | WRITE)]
    else:
        rules += [(path, READ) for path in (*policy.readable, policy.empty_directory)]
    restrict(rules)


def limit_resources(bounds: ProgramBounds, idle_bytes: int) -> None:
    """Set the resource limits, soft and hard alike."""
    seconds = math.ceil(bounds.cpu_seconds) + 1
    for kind, value in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, bounds.scratch_bytes),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_NPROC, bounds.tasks),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_AS, idle_bytes + bounds.memory_bytes),
    ):
        hard = resource.getrlimit(kind)[1]
        lowered = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (lowered, lowered))


def confine_program(
    policy: JailPolicy, bounds: ProgramBounds, *, uid: int, idle_bytes: int
) -> None:
    """Confine the calling process, which then runs untrusted code."""
    mechanisms = policy.mechanisms
    os.chdir(SCRATCH if Mechanism.NAMESPACES in mechanisms else policy.empty_directory)
    if Mechanism.OWN_UID in mechanisms:
        become(uid)
    kernel.drop_capabilities()
    kernel.forbid_new_privileges()
    kernel.die_with_parent(signal.SIGKILL)
    if Mechanism.LANDLOCK in mechanisms:
        restrict_files(policy)
    limit_resources(bounds, idle_bytes)
    if Mechanism.SECCOMP in mechanisms:
        seccomp.restrict()
