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

_QUITS = ("sh", "-c", f"read -r _; echo quit | {CONTROL}")
"""Ends a daemon when its standard input ends, so also after a kill of this process."""

logger = logging.getLogger(__name__)


class Mps:
    """A control daemon of MPS; `environment` has its pipe directory."""

    def __init__(
        self, environment: Mapping[str, str], quits: subprocess.Popen[bytes] | None = None
    ) -> None:
        self._environment = dict(environment)
        self._quits = quits

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
        if self._quits is None:
            return
        try:
            self._quits.communicate(timeout=CALL_SECONDS)
        except subprocess.TimeoutExpired:
            self._quits.kill()
        if self._quits.wait():
            logger.warning("the MPS daemon did not quit")


def chosen_mps(mode: str, inherited: Mapping[str, str], folder: Path) -> Mps | None:
    """Return the daemon for the workers, if any."""
    if mode == "off":
        return None
    if running := running_mps(inherited):
        return running
    try:
        return start_mps(inherited, folder)
    except UnavailableError as error:
        if mode == "on":
            raise
        logger.info("one engine a GPU: %s", error)
        return None


def running_mps(inherited: Mapping[str, str]) -> Mps | None:
    """Return the running daemon of the environment's or the default pipe directory, if any."""
    environment = _with_driver(inherited)
    daemon = Mps(environment)
    if not daemon.accepts("get_server_list"):
        return None
    logger.info("an MPS daemon runs", extra={"pipes": environment.get(PIPES, "the default")})
    return daemon


def start_mps(inherited: Mapping[str, str], folder: Path) -> Mps:
    """Start a daemon that sees all GPUs; `folder` is for pipes and logs and needs a short path."""
    pipes, logs = folder / "mps", folder / "mps-log"
    environment = _with_driver(inherited) | {PIPES: str(pipes), LOGS: str(logs)}
    environment.pop(VISIBLE, None)
    for directory in (pipes, logs):
        directory.mkdir(exist_ok=True)
    try:
        _run([CONTROL, "-d"], environment)
    except (OSError, subprocess.SubprocessError) as error:
        raise _unusable(f"NVIDIA's MPS does not start: {error}") from error
    quits = subprocess.Popen(
        _QUITS,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    daemon = Mps(environment, quits)
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
