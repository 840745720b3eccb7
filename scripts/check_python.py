"""Refuse an interpreter that modnorm cannot run on, before anything is installed.

With `--vllm`, one that the pinned CPU build of vLLM is not known to run on.
"""

import platform
import sys

OLDEST = (3, 11)
VLLM = ("CPython", 3, 11, "Linux", "x86_64")
"""What `tests/engines/vllm/requirements.txt` is for."""

found = ".".join(str(part) for part in sys.version_info[:3])
if sys.version_info < OLDEST:
    sys.exit(f"modnorm needs Python 3.11 or newer, this is {found}: make PYTHON=python3.11 ...")

here = (
    platform.python_implementation(),
    *sys.version_info[:2],
    platform.system(),
    platform.machine(),
)
if "--vllm" in sys.argv[1:] and here != VLLM:
    sys.exit(
        f"the tests against vLLM need CPython 3.11 on Linux x86-64, this is {here[0]} {found} on "
        f"{here[3]} {here[4]}: make PYTHON=python3.11 test-vllm; make test-main runs all others"
    )
