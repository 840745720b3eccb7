"""NVIDIA's Multi-Process Service: without it, engines on one GPU take turns."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.gpu_search.processes import environment, variable

PROGRAM = "nvidia-cuda-mps-control"
_FOLDERS = ("/usr/local/nvidia/bin", "/usr/bin", "/usr/local/bin", "/opt/nvidia/bin")


@contextmanager
def mps_daemon() -> Iterator[Mapping[str, str]]:
    """Run the daemon until the context ends; yield what the environment of its clients needs.

    Raises:
        SystemExit: it is not installed, or does not start.
    """
    program = _program()
    with tempfile.TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True) as name:
        clients = {"CUDA_MPS_PIPE_DIRECTORY": name, "CUDA_MPS_LOG_DIRECTORY": name}
        # The daemon starts its server from PATH.
        path = f"{program.parent}:{variable('PATH')}"
        variables = environment({**clients, "PATH": path})
        started = subprocess.run([program, "-d"], env=variables, check=False)
        if started.returncode:
            raise SystemExit(f"{program} does not start ({started.returncode})")
        try:
            yield clients
        finally:
            subprocess.run([program], input=b"quit\n", env=variables, check=False, timeout=60)


def _program() -> Path:
    beside = shutil.which("nvidia-smi")
    folders = [str(Path(beside).resolve().parent)] if beside else []
    found = shutil.which(PROGRAM, path=":".join([variable("PATH"), *folders, *_FOLDERS]))
    if found is None:
        raise SystemExit(f"{PROGRAM} is not there: it comes with the driver of the GPU")
    return Path(found)
