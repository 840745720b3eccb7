"""Check the interpreter before an installation.

With `--vllm`, also check the machine for the pinned CPU build of vLLM.
"""

import platform
import sys
from pathlib import Path

OLDEST = (3, 11)
VLLM = ("CPython", 3, 11, "Linux", "x86_64")
"""The platform of `tests/engines/vllm/requirements.txt`."""
INSTRUCTIONS = ("avx2", "f16c", "fma")
"""Needed by the smallest of the build's three libraries, `_C_AVX2`; the others need AVX-512."""
CPUINFO = Path("/proc/cpuinfo")

version = ".".join(str(part) for part in sys.version_info[:3])


def lacking(cpuinfo: str) -> "list[str]":
    """Return the instruction sets of vLLM's CPU build that a processor lacks."""
    lines = [line.split(":")[1].split() for line in cpuinfo.splitlines() if line[:5] == "flags"]
    known = set(lines[0]) if lines else set()
    return [name for name in INSTRUCTIONS if name not in known]


def check() -> None:
    """Exit with a message if modnorm does not run on this Python."""
    if sys.version_info < OLDEST:
        sys.exit(
            f"modnorm needs Python 3.11 or newer, this is {version}: make PYTHON=python3.11 ..."
        )


def check_vllm() -> None:
    """Exit with a message if the tests with vLLM cannot run here."""
    here = (
        platform.python_implementation(),
        *sys.version_info[:2],
        platform.system(),
        platform.machine(),
    )
    if here != VLLM:
        sys.exit(
            f"vLLM's CPU build needs CPython 3.11 on Linux x86-64, this is {here[0]} {version} on "
            f"{here[3]} {here[4]}: make PYTHON=python3.11 test-vllm"
        )
    missing = lacking(CPUINFO.read_text())
    if missing:
        sys.exit(f"vLLM's CPU build needs a processor with {', '.join(missing)}, this has none")


if __name__ == "__main__":
    check()
    if "--vllm" in sys.argv[1:]:
        check_vllm()
