"""Malformed, oversized and forbidden requests to every rpc of a lab, from a seed.

    python -m verification.fuzz --requests 10000 --seed 1

Each request must be refused according to its token, or be answered without a defect of the
server. Afterwards every service serves, the log contains no defect and no secret, and the database
contains only accepted additions.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from verification.fuzz.fuzzer import FuzzResults, fuzz
from verification.labs.secured_lab import secured_lab

SHOWN = 20


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, secured_lab(Path(folder)) as lab:
        figures = fuzz(lab, options.requests, options.seed)
    _report(figures)
    return 1 if figures.faults else 0


def _report(figures: FuzzResults) -> None:
    pace = figures.requests / figures.seconds
    print(
        f"{figures.requests} requests to {len(figures.rpcs)} rpcs "
        f"in {figures.seconds:.1f} s ({pace:.0f} /s)"
    )
    for (kind, code), count in sorted(figures.codes.items()):
        print(f"  token {kind:18} {code:20} {count:>7,}")
    print(f"{len(figures.faults)} faults")
    for fault in figures.faults[:SHOWN]:
        print(f"  {fault}")


if __name__ == "__main__":
    sys.exit(main())
