"""Compare two runs row by row: `python examples/compare_runs.py RUN RUN`."""

import sys
from pathlib import Path

import pandas as pd

from modnorm.analysis.comparison import compare_runs
from modnorm.analysis.run import load_runs

COLUMNS = ["population", "ensemble_size", "difference", "difference_interval", "p_value"]


def main(first: str, second: str) -> None:
    """Print what differs, the paired tests at each (N, K) and the verdict."""
    _, row = compare_runs(load_runs([Path(first), Path(second)]))
    print("differs in:", ", ".join(row["differs"]) or "nothing")
    if row["paired"]:
        print(pd.DataFrame(row["paired"])[COLUMNS].to_string(index=False))
    print(row["verdict"])


if __name__ == "__main__":
    main(*sys.argv[1:])
