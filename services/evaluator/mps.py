"""NVIDIA's Multi-Process Service (MPS), which lets processes that share a GPU run concurrently."""

import logging
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from modnorm.errors import UnavailableError

CONTROL = "nvidia-cuda-mps-control"
FOLDERS = ("/usr/local/nvidia/bin", "/usr/bin", "/usr/lib/wsl/lib", "/opt/nvidia/bin")
"""Folders of the driver's programs that may not be on the path."""
CALL_SECONDS = 20.0
PIPES, LOGS, VISIBLE = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_VISIBLE_DEVICES"

logger = logging.getLogger(__name__)


class Mps:
    """A control daemon of MPS.

    Args:
        environment: Environment variables with its pipe directory.
        is_ours: Whether this process started it, and `close` ends it.
    """

    def __init__(self, environment: Mapping[str, str], *, is_ours: bool) -> None:
        self._environment = dict(environment)
        self._is_ours = is_ours

    @property
    def changes(self) -> dict[str, str]:
        """Environment variables by which a client finds the daemon."""
        return {
            name: self._environment[name] for name in (PIPES, LOGS) if name in self._environment
        }

    def accepts(self, command: str) -> bool:
        """Send the daemon a command; return whether it answers."""
        try:
            _run([CONTROL], self._environment, f"{command}\n")
        except (OSError, subprocess.SubprocessError):
            return False
        return True

    def close(self) -> None:
        """End a daemon that this process started; its clients must have ended."""
        if self._is_ours and not self.accepts("quit"):
            logger.warning("the MPS daemon did not quit")


def chosen_mps(mode: str, inherited: Mapping[str, str], folder: Path) -> Mps | None:
    """Return the daemon for the workers, if any.

    Args:
        mode: `auto` uses a running daemon, `on` also starts one if none runs, `off` uses none.
        inherited: This process's environment.
        folder: Folder for the pipes and logs of a new daemon.

    Raises:
        UnavailableError: the daemon does not start.
    """
    if mode == "off":
        return None
    running = running_mps(inherited)
    return start_mps(inherited, folder) if running is None and mode == "on" else running


def running_mps(inherited: Mapping[str, str]) -> Mps | None:
    """Return the running daemon of the environment's or the default pipe directory, if any."""
    environment = _with_driver(inherited)
    daemon = Mps(environment, is_ours=False)
    if not daemon.accepts("get_server_list"):
        return None
    logger.info("an MPS daemon runs", extra={"pipes": environment.get(PIPES, "the default")})
    return daemon


def start_mps(inherited: Mapping[str, str], folder: Path) -> Mps:
    """Start a daemon that sees all GPUs; clients select theirs by CUDA_VISIBLE_DEVICES as usual.

    Args:
        inherited: This process's environment.
        folder: Folder for pipes and logs, with a short path: a socket's has at most 107 bytes.

    Raises:
        UnavailableError: the daemon does not start.
    """
    pipes, logs = folder / "mps", folder / "mps-log"
    environment = _with_driver(inherited) | {PIPES: str(pipes), LOGS: str(logs)}
    environment.pop(VISIBLE, None)
    for directory in (pipes, logs):
        directory.mkdir(exist_ok=True)
    try:
        _run([CONTROL, "-d"], environment)
    except (OSError, subprocess.SubprocessError) as error:
        raise _unusable(f"NVIDIA's MPS does not start: {error}") from error
    daemon = Mps(environment, is_ours=True)
    if not daemon.accepts("get_server_list"):
        daemon.close()
        raise _unusable("NVIDIA's MPS was started but does not answer")
    logger.info("started an MPS daemon", extra={"pipes": str(pipes)})
    return daemon


def _with_driver(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the driver's folder in PATH, which the daemon needs."""
    path = inherited.get("PATH", os.defpath)
    tool = shutil.which("nvidia-smi", path=path)
    folders = (*([str(Path(tool).resolve().parent)] if tool else []), *FOLDERS)
    return {**inherited, "PATH": os.pathsep.join((path, *folders))}


def _run(command: Sequence[str], environment: Mapping[str, str], text: str = "") -> None:
    """Run a driver program; discard its output, since a daemon could keep a pipe open."""
    subprocess.run(
        command,
        env=environment,
        input=text,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=CALL_SECONDS,
    )


def _unusable(reason: str) -> UnavailableError:
    return UnavailableError(
        reason,
        field="mps",
        remedy="give the container the driver's programs, or set MODNORM_MPS=off",
    )
