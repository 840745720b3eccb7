"""Check the interpreter before an installation.

With `--vllm`, also check the machine for the pinned CPU build of vLLM.
"""

import platform
import sys
from pathlib import Path

OLDEST = (3, 11)
INSTRUCTIONS = ("avx2", "f16c", "fma")
"""Needed by the smallest of the build's three libraries, `_C_AVX2`; the others need AVX-512."""


def lacking(cpuinfo: str) -> "list[str]":
    """Return the instruction sets of vLLM's CPU build that a processor lacks."""
    lines = [line.split(":")[1].split() for line in cpuinfo.splitlines() if line[:5] == "flags"]
    known = set(lines[0]) if lines else set()
    return [name for name in INSTRUCTIONS if name not in known]


if __name__ == "__main__":
    version = platform.python_version()
    if sys.version_info < OLDEST:
        sys.exit(
            f"modnorm needs Python 3.11 or newer, this is {version}: make PYTHON=python3.11 ..."
        )
    if "--vllm" in sys.argv[1:]:
        here = (platform.python_implementation(), platform.system(), platform.machine())
        # The platform of `tests/engines/vllm/requirements.txt`.
        if (*sys.version_info[:2], *here) != (3, 11, "CPython", "Linux", "x86_64"):
            sys.exit(
                "vLLM's CPU build needs CPython 3.11 on Linux x86-64, this is "
                f"{here[0]} {version} on {here[1]} {here[2]}: make PYTHON=python3.11 test-vllm"
            )
        names = ", ".join(lacking(Path("/proc/cpuinfo").read_text()))
        if names:
            sys.exit(f"vLLM's CPU build needs a processor with {names}, this has none")
