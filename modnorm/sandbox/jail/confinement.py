"""Confines processes: the zygote for all programs, and each program."""

import math
import os
import resource
import signal
from pathlib import Path

from modnorm.sandbox.jail import kernel, landlock, seccomp
from modnorm.sandbox.jail.jail_messages import JailPolicy, Mechanism, ProgramBounds

SCRATCH = "/scratch"
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
OPEN_FILES = 64

_SHARED = kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
_FIRST_UID = 61184
_UIDS = 4000
"""systemd's range for dynamic users, which contains no account of a person or a package."""


def enter_namespaces(policy: JailPolicy) -> None:
    """Leave the host's mounts, network, IPC and host name; only readable paths stay visible.

    Raises:
        OSError: the kernel refused; the process is unusable.
    """
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        kernel.unshare(_SHARED)
    else:
        kernel.unshare(kernel.CLONE_NEWUSER | _SHARED)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    _build_root(policy)
    kernel.enter_root(policy.empty_directory)
    kernel.make_read_only("/", recursive=False)


def _build_root(policy: JailPolicy) -> None:
    root = Path(policy.empty_directory)
    kernel.mount("tmpfs", str(root), "tmpfs", kernel.MS_NOSUID, "size=1m,nr_inodes=512,mode=0755")
    for path in (*policy.readable, *DEVICES):
        _show(path, root)
    (root / SCRATCH[1:]).mkdir()


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
    """Change from root to a uid and gid without groups.

    Raises:
        OSError: the process lacks the privilege.
    """
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def enter_program_namespaces(bounds: ProgramBounds, uid: int) -> None:
    """Give the warden's next child its own PID namespace and working directory."""
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWPID)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    options = f"size={bounds.scratch_bytes},nr_inodes=256,mode=0700,uid={uid},gid={uid_group(uid)}"
    kernel.mount("tmpfs", SCRATCH, "tmpfs", flags, options)


def uid_group(uid: int) -> int:
    """Return the gid for a program's uid."""
    return os.getegid() if uid == os.geteuid() else uid


def restrict_files(mechanisms: frozenset[Mechanism], policy: JailPolicy) -> None:
    """Let Landlock allow reads of the readable paths and writes to the scratch directory only."""
    rules = [(device, landlock.READ_FILE | landlock.WRITE_FILE) for device in DEVICES]
    if Mechanism.NAMESPACES in mechanisms:
        rules += [("/", landlock.READ), (SCRATCH, landlock.READ | landlock.WRITE)]
    else:
        rules += [(path, landlock.READ) for path in (*policy.readable, policy.empty_directory)]
    landlock.restrict(rules)


def limit_resources(bounds: ProgramBounds, idle_bytes: int) -> None:
    """Set the resource limits, soft and hard alike.

    Args:
        bounds: The bounds.
        idle_bytes: Address space of the idle interpreter, which is added.
    """
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
        lowered = _at_most_hard(kind, value)
        resource.setrlimit(kind, (lowered, lowered))


def _at_most_hard(kind: int, value: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def confine_program(
    mechanisms: frozenset[Mechanism],
    policy: JailPolicy,
    bounds: ProgramBounds,
    *,
    uid: int,
    idle_bytes: int,
) -> None:
    """Confine the calling process, which then runs untrusted code.

    Raises:
        OSError: a mechanism failed.
    """
    os.chdir(SCRATCH if Mechanism.NAMESPACES in mechanisms else policy.empty_directory)
    if Mechanism.OWN_UID in mechanisms:
        become(uid)
    kernel.drop_capabilities()
    kernel.forbid_new_privileges()
    kernel.die_with_parent(signal.SIGKILL)
    if Mechanism.LANDLOCK in mechanisms:
        restrict_files(mechanisms, policy)
    limit_resources(bounds, idle_bytes)
    if Mechanism.SECCOMP in mechanisms:
        seccomp.restrict()
