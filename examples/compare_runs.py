"""Compare two runs row by row: `python examples/compare_runs.py RUN RUN`."""

import sys
from pathlib import Path

from modnorm.analysis import compare_runs, load_results


def main(first: str, second: str) -> None:
    """Print what differs, the paired tests at each (N, K) and the verdict."""
    _, row = compare_runs([load_results(Path(first)), load_results(Path(second))])
    print("differs in:", ", ".join(row["differs"]) or "nothing")
    for pair in row["paired"]:
        print(pair)
    print(row["verdict"])


if __name__ == "__main__":
    main(*sys.argv[1:])
