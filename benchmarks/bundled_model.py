"""The README's table: base, RandOpt and Modular Norm on the bundled model over three seeds.

    python -m benchmarks.bundled_model [--out runs/table] [--seeds 42,43,44]

Runs the two demo specs, each at its tuned scale, once per seed; an existing run is not
repeated. Prints mean and, for several seeds, sample standard deviation, in percent.
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from modnorm.analysis.comparison import ComparisonRow, compare_runs, load_results

EXAMPLES = Path(__file__).parent.parent / "examples"
SPECS = {
    "RandOpt": EXAMPLES / "demo-randopt.yaml",
    "Modular Norm": EXAMPLES / "demo-modular-norm.yaml",
}
COMMAND = Path(sys.executable).with_name("modnorm")


def main() -> None:
    """Run missing seeds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/table"))
    parser.add_argument("--seeds", default="42,43,44")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    rows = {
        name: compare_runs([load_results(_run(spec, seed, options.out)) for seed in seeds])
        for name, spec in SPECS.items()
    }
    print(_table(rows))


def _run(spec: Path, seed: int, out: Path) -> Path:
    directory = out / f"{spec.stem}-{seed}"
    command = [str(COMMAND), "run", str(spec), "--seed", str(seed), "--out", str(directory), "-q"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return directory


def _table(rows: dict[str, list[ComparisonRow]]) -> str:
    first = next(iter(rows.values()))
    sizes = sorted(first[0]["ensembles"])
    head = ["method", "scale", *(f"K = {size}" for size in sizes)]
    lines = [
        head,
        ["---"] * len(head),
        ["base", "", *[_spread([_base(r) for r in first])] * len(sizes)],
    ]
    for name, runs in rows.items():
        cells = [_spread([run["ensembles"][size] for run in runs]) for size in sizes]
        lines.append([name, f"{runs[0]['radius']:g}", *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _base(row: ComparisonRow) -> float:
    assert row["base"] is not None
    return row["base"]


def _spread(values: Sequence[float]) -> str:
    mean = f"{100 * statistics.fmean(values):.1f}"
    return f"{mean} ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else mean


if __name__ == "__main__":
    main()
