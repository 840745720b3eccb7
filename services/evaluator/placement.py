"""The GPUs of a host, the placement of its workers on them, and each worker's environment."""

import logging
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.errors import InvalidInputError, UnavailableError

if TYPE_CHECKING:
    from modnorm.services.common.settings import SupervisorSettings

_ALL = "all"
_QUERY = (
    "nvidia-smi",
    "--query-gpu=index,memory.total,memory.used",
    "--format=csv,noheader,nounits",
)
ENGINES_UNDER_MPS = 3
"""Engines that share a GPU by default if NVIDIA's MPS lets them overlap."""
PORTS_EACH = 100
"""Ports of each worker's engine; the first worker's begin at `engine_ports`."""
_FREE = 0.9
"""Part of its memory that a GPU has free if no other program uses it."""
_FULL = 3 * 2**30
"""Bytes of weights that keep a GPU full: a model of 3.1 GB gained nothing from a second engine,
one of 1 GB took 0.4 of the time with three."""
_ENGINE = 10 * 2**30
"""Bytes of a GPU's memory that an engine of a small model needs to be fast."""
COMPILE_CACHES = ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
"""Variables that name a folder of compiled kernels, which two processes must not share."""


@dataclass(frozen=True, slots=True)
class Place:
    """The device of one worker and the worker's number there."""

    number: int
    """Number of the worker on the host; unused slots are counted too."""
    device: str
    """CUDA devices, separated by commas; empty on a CPU."""
    slot: int
    """Number of the worker on its device."""
    engines: int
    """Number of workers on the device."""


def chosen_devices(devices: str, visible: str | None) -> tuple[str, ...]:
    """Return the CUDA devices to use; none for a single worker on the CPU."""
    if devices != _ALL:
        return _distinct(_split(devices))
    present = [gpu.device for gpu in query_gpus()] if visible is None else _split(visible)
    if not present:
        raise UnavailableError(
            "there is no GPU",
            field="devices",
            remedy="give the container GPUs, or leave MODNORM_DEVICES empty for CPUs",
        )
    return _distinct(present)


def free_devices(visible: str | None) -> tuple[str, ...]:
    """Return the devices for a run on a host that others may use; none without a GPU."""
    if visible is not None:  # CUDA ignores what follows a number that is none
        return _distinct(tuple(takewhile(lambda name: name != "-1", _split(visible))))
    try:
        gpus = query_gpus()
    except UnavailableError:
        return ()
    least_used = sorted(gpus, key=lambda gpu: gpu.used)[:1]
    free = [gpu for gpu in gpus if gpu.used <= (1 - _FREE) * gpu.total]
    return tuple(gpu.device for gpu in free or least_used)


def fitting_engines(memory: int, weights: int) -> int:
    """Return how many engines of a model fill a GPU."""
    return max(1, min(ENGINES_UNDER_MPS, _FULL // weights, memory // _ENGINE))


def _split(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _distinct(devices: Sequence[str]) -> tuple[str, ...]:
    if len(set(devices)) != len(devices):
        raise InvalidInputError(
            f"a device is named twice: {','.join(devices)}",
            field="devices",
            remedy="name each GPU once in MODNORM_DEVICES",
        )
    return tuple(devices)


@dataclass(frozen=True, slots=True)
class Gpu:
    device: str
    total: int
    """Bytes of memory; 0 if the driver does not tell, as where the host's memory is the GPU's."""
    used: int
    """Bytes that are taken now; 0 if the driver does not tell."""


def query_gpus() -> Sequence[Gpu]:
    try:
        query = subprocess.run(_QUERY, check=True, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(
            f"the GPUs cannot be counted: {error}",
            field="devices",
            remedy="give the container the driver's tools, or list GPUs in MODNORM_DEVICES",
        ) from error
    rows = [line.split(", ") for line in query.stdout.splitlines()]
    return [Gpu(device, _bytes(total), _bytes(used)) for device, total, used in rows]


def _bytes(mebibytes: str) -> int:
    return int(mebibytes) * 2**20 if mebibytes.isdecimal() else 0


def engines_per_gpu(settings: "SupervisorSettings", most: int = ENGINES_UNDER_MPS) -> int:
    """Return how many engines share a GPU where MPS runs; `most` if the settings leave it open."""
    requested, spread = settings.engines_per_gpu, settings.gpus_per_worker > 1
    if requested == "auto":
        return most if settings.mps != "off" and not spread else 1
    if spread and int(requested) > 1:
        raise InvalidInputError(
            "a worker with several GPUs cannot share them",
            field="engines_per_gpu",
            remedy="set MODNORM_ENGINES_PER_GPU or MODNORM_GPUS_PER_WORKER to 1",
        )
    return int(requested)


def grouped(devices: Sequence[str], size: int) -> tuple[str, ...]:
    """Return the devices of each worker, in groups of neighbours."""
    if len(devices) % size:
        raise InvalidInputError(
            f"{len(devices)} GPUs cannot be divided into groups of {size}",
            field="gpus_per_worker",
            remedy="change MODNORM_GPUS_PER_WORKER or MODNORM_DEVICES",
        )
    starts = range(0, len(devices), size)
    return tuple(",".join(devices[start : start + size]) for start in starts)


def environment_of(
    place: Place, settings: "SupervisorSettings", inherited: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """Return the complete environment of a worker."""
    changes = {
        "MODNORM_SUPERVISED": "true",
        "MODNORM_BIND_ADDRESS": address_of(place, folder),
        "MODNORM_METRICS_ADDRESS": _later_port(settings.metrics_address, place.number),
    }
    if place.device:
        changes |= _on_gpu(place, settings, inherited)
    if place.engines > 1:
        changes["MODNORM_MAY_MAKE_ROOM"] = str(settings.engines_per_gpu == "auto")
    return {**inherited, **changes}


def address_of(place: Place, folder: Path) -> str:
    """Return the address of a worker's health checks."""
    return f"unix:{folder / str(place.number)}"


def _on_gpu(
    place: Place, settings: "SupervisorSettings", inherited: Mapping[str, str]
) -> dict[str, str]:
    number = str(place.number)
    caches = {
        name: str(Path(inherited.get(name) or settings.cache / name.lower()) / number)
        for name in COMPILE_CACHES
    }
    lock = settings.cache / f"engine-load-{number}.lock"
    changes = {
        **caches,
        "MODNORM_LOAD_LOCK": str(lock),
        "CUDA_VISIBLE_DEVICES": place.device,
        "VLLM_PORT": str(settings.engine_ports + PORTS_EACH * place.number),
        "MODNORM_GPU_MEMORY_UTILIZATION": repr(settings.gpu_memory_utilization / place.engines),
    }
    if settings.worker_name:
        slot = f".{place.slot}" if place.engines > 1 else ""
        changes["MODNORM_WORKER_NAME"] = f"{settings.worker_name}-{place.device}{slot}"
    return changes


def _later_port(address: str, number: int) -> str:
    """Return the address with its port increased by the worker's number."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + number}" if port.isdecimal() and int(port) else address


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
