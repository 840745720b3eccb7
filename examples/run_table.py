"""Print the accuracies of a run: `python examples/run_table.py RUN`."""

import sys

from modnorm import load_run


def main(directory: str) -> None:
    """Print the base, every ensemble with its interval, and the best candidates."""
    run = load_run(directory)
    print("base", run.base.heldout_metric)
    print(run.to_pandas().to_string(index=False))
    candidates = run.candidates_frame.sort_values("selection_reward", ascending=False)
    print(candidates[["index", "selection_reward", "heldout_metric"]].head())


if __name__ == "__main__":
    main(*sys.argv[1:])
