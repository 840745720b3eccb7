"""NVIDIA's Multi-Process Service: without it, processes that share a GPU only take turns."""

import logging
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from modnorm.errors import UnavailableError

CONTROL = "nvidia-cuda-mps-control"
FOLDERS = ("/usr/local/nvidia/bin", "/usr/bin", "/usr/lib/wsl/lib", "/opt/nvidia/bin")
"""Where drivers put their programs, when they are not on the path."""
CALL_SECONDS = 20.0
PIPES, LOGS, VISIBLE = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_VISIBLE_DEVICES"

logger = logging.getLogger(__name__)


class Mps:
    """A control daemon of MPS, whoever started it.

    Args:
        environment: What it is asked in, and what its clients add to theirs.
        is_ours: Whether it was started here, and ends with `close`.
    """

    def __init__(self, environment: Mapping[str, str], *, is_ours: bool) -> None:
        self._environment = dict(environment)
        self._is_ours = is_ours

    @property
    def changes(self) -> dict[str, str]:
        """What a client's environment needs to find it."""
        return {
            name: self._environment[name] for name in (PIPES, LOGS) if name in self._environment
        }

    def close(self) -> None:
        """End the daemon, if it was started here; used when its clients are gone."""
        if self._is_ours and _ask("quit", self._environment) is None:
            logger.warning("the MPS daemon did not quit")


def chosen_mps(mode: str, inherited: Mapping[str, str], folder: Path) -> Mps | None:
    """Return the daemon that workers are to use, if any.

    Args:
        mode: `auto` for one that runs, `on` to start one otherwise, `off` for none.
        inherited: This process's environment.
        folder: Where the pipes and logs of a new one go.

    Raises:
        UnavailableError: it was to be started, and does not start.
    """
    if mode == "off":
        return None
    found = running_mps(inherited)
    return start_mps(inherited, folder) if found is None and mode == "on" else found


def running_mps(inherited: Mapping[str, str]) -> Mps | None:
    """Return the daemon that the environment's pipe directory, or the default one, leads to."""
    environment = _with_driver(inherited)
    if _ask("get_server_list", environment) is None:
        return None
    logger.info("an MPS daemon runs", extra={"pipes": environment.get(PIPES, "the default")})
    return Mps(environment, is_ours=False)


def start_mps(inherited: Mapping[str, str], folder: Path) -> Mps:
    """Start a daemon of one's own.

    Args:
        inherited: This process's environment. The daemon sees all GPUs, whatever that says: its
            clients name theirs as if there were no daemon.
        folder: Where its pipes and logs go; short, as a socket's path has at most 107 bytes.

    Raises:
        UnavailableError: it does not start.
    """
    pipes, logs = folder / "mps", folder / "mps-log"
    environment = _with_driver(inherited) | {PIPES: str(pipes), LOGS: str(logs)}
    environment.pop(VISIBLE, None)
    for directory in (pipes, logs):
        directory.mkdir(exist_ok=True)
    try:
        _run([CONTROL, "-d"], environment, output=subprocess.DEVNULL)  # a daemon may keep a pipe
    except (OSError, subprocess.SubprocessError) as error:
        raise _unusable(f"NVIDIA's MPS does not start: {error}") from error
    if _ask("get_server_list", environment) is None:
        raise _unusable("NVIDIA's MPS was started, and does not answer")
    logger.info("started an MPS daemon", extra={"pipes": str(pipes)})
    return Mps(environment, is_ours=True)


def _with_driver(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return an environment whose path has the driver's folder: the daemon starts a server."""
    path = inherited.get("PATH", os.defpath)
    tool = shutil.which("nvidia-smi", path=path)
    folders = (*([str(Path(tool).resolve().parent)] if tool else []), *FOLDERS)
    return {**inherited, "PATH": os.pathsep.join((path, *folders))}


def _ask(command: str, environment: Mapping[str, str]) -> str | None:
    """Give the daemon a command; return what it says, None when it does not answer."""
    try:
        return _run([CONTROL], environment, text=f"{command}\n")
    except (OSError, subprocess.SubprocessError):
        return None


def _run(
    command: list[str],
    environment: Mapping[str, str],
    text: str = "",
    output: int = subprocess.PIPE,
) -> str:
    """Run a program of the driver; return what it says."""
    program = shutil.which(command[0], path=environment["PATH"])
    if program is None:
        raise FileNotFoundError(f"there is no {command[0]}")
    ended = subprocess.run(
        [program, *command[1:]],
        env=dict(environment),
        input=text,
        check=True,
        stdout=output,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=CALL_SECONDS,
    )
    return ended.stdout or ""


def _unusable(reason: str) -> UnavailableError:
    return UnavailableError(
        reason,
        field="mps",
        remedy="see that the container has the driver's programs, or set MODNORM_MPS=off",
    )
