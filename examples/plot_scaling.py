"""Plot accuracy against population size: `python examples/plot_scaling.py RUN IMAGE`."""

import sys

from matplotlib.figure import Figure

from modnorm import load_run


def main(directory: str, image: str) -> None:
    """Draw one line for each K, with 95 % Wilson intervals."""
    table = load_run(directory).to_pandas()
    figure = Figure(layout="constrained")
    axes = figure.add_subplot()
    for size, line in table.groupby("ensemble_size"):
        errors = [line["metric"] - line["lower"], line["upper"] - line["metric"]]
        axes.errorbar(line["population"], line["metric"], errors, capsize=3, label=f"K = {size}")
    axes.set(xlabel="population N", ylabel="held-out accuracy")
    axes.legend()
    figure.savefig(image)


if __name__ == "__main__":
    main(*sys.argv[1:])
