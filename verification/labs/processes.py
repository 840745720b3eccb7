"""End of child processes."""

import subprocess


def end(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Terminate a process; kill it after a timeout."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
