"""Lower bound of a search's time: each decode step reads all weights once."""

import platform
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import torch

REPEATS = 10


@dataclass(frozen=True)
class Size:
    """Number of bytes to copy."""

    bytes: int


def serve(connection: Connection, size: Size) -> None:
    """Send the device, its memory, the bandwidth of a copy and the CPU.

    The bandwidth counts bytes read and written per second.
    """
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    source = torch.ones(size.bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = median([_copy(source, target) for _ in range(REPEATS + 1)][1:])
    name = torch.cuda.get_device_name(device) if on_gpu else "cpu"
    connection.send(
        {
            "device": name,
            "memory": torch.cuda.get_device_properties(device).total_memory if on_gpu else 0,
            "bandwidth": 2 * size.bytes / seconds,
            "processor": _processor(),
        }
    )


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _copy(source: torch.Tensor, target: torch.Tensor) -> float:
    _wait(source)
    started = time.perf_counter()
    target.copy_(source)
    _wait(source)
    return time.perf_counter() - started


def _wait(tensor: torch.Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
