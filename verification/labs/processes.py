"""Processes that benchmarks start."""

import subprocess


def end(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Ask a process to end; kill it when it has not in time.

    Args:
        process: The process.
        seconds: How long it may take.
    """
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
