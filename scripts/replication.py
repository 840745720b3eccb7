"""The results of the paper's experiments on real models: small copies of runs, and their tables.

    python -m scripts.replication collect RUN... --command TEXT --commit HASH
    python -m scripts.replication collect-matching DIR SPEC --note TEXT --command ...
    python -m scripts.replication tables

`collect` adds small copies of finished runs, or of all finished cells of suite directories, to
`replication/cells`; a cell that is there already is left alone. `collect-matching` writes the
archive of a `modnorm match` run and its spec to `replication/matchings`. `tables` builds every
table and figure from these copies and fills docs/replication.md.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.analysis.document import ResultsDocument
from modnorm.analysis.run import load_run
from modnorm.analysis.run_files import RESULTS, runs_inside
from modnorm.errors import ModnormError
from scripts.run_copies import pack_run

if TYPE_CHECKING:
    from modnorm.analysis.analyses import Analysis

OUT = Path("replication")
CELLS = OUT / "cells"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts.replication",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="name", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("runs", nargs="+", type=Path)
    matching = commands.add_parser("collect-matching")
    matching.add_argument("directory", type=Path)
    matching.add_argument("spec", type=Path)
    matching.add_argument("--note", required=True, help="remark on the run, such as its time")
    for each in (collecting, matching):
        each.add_argument("--command", required=True, help="command that made the runs")
        each.add_argument("--commit", required=True, help="commit of modnorm that ran it")
    commands.add_parser("tables")
    options = parser.parse_args()
    try:
        if options.name == "collect":
            collect(options.runs, CELLS, command=options.command, commit=options.commit)
        elif options.name == "collect-matching":
            from scripts.recorded_tables import pack_matching  # noqa: PLC0415 - loads torch

            origin = {key: getattr(options, key) for key in ("command", "commit", "note")}
            print(pack_matching(options.directory, options.spec, OUT / "matchings", origin))
        else:
            _tables()
    except (ModnormError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _tables() -> None:
    """Write the tables while other processes draw the figures."""
    from modnorm.analysis.figures import write_figures  # noqa: PLC0415 - loads matplotlib
    from scripts.replication_tables import write_tables  # noqa: PLC0415 - loads pandas

    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(mp_context=get_context("spawn")) as pool,
    ):
        drawing = list[Future[object]]()

        def draw(place: Path, analysis: "Analysis") -> None:
            drawing.append(pool.submit(write_figures, place, analysis))

        write_tables(CELLS, OUT, Path("docs/replication.md"), Path(folder), draw)
        for each in drawing:
            each.result()


def collect(runs: Sequence[Path], to: Path, *, command: str, commit: str) -> list[Path]:
    """Copy finished runs that are not there yet; return the new files.

    Directories without results are left out with a note.
    """
    to.mkdir(parents=True, exist_ok=True)
    written = []
    for directory in (each for path in runs for each in runs_inside(path) or [path]):
        if not (directory / RESULTS).is_file():
            print(f"{directory} is left out: it has no results")
            continue
        run = load_run(directory)
        archive = to / f"{cell_name(run.document)}.zip"
        if archive.exists():
            continue
        devices = {str(each.get("device")) for each in run.environments()}
        origin = {"command": command, "commit": commit, "card": ", ".join(sorted(devices))}
        pack_run(run, archive, origin)
        written.append(archive)
        print(f"{archive}: {archive.stat().st_size:,} bytes")
    return written


def cell_name(document: ResultsDocument) -> str:
    """Return the name of a cell; its end is the digest of its spec."""
    spec = document["spec"]
    model, population = spec["model"]["name"].rpartition("/")[2], spec["population"]
    names = f"{model}_{spec['task']['name']}_{spec['method']['name']}"
    digest = str(document["provenance"]["spec_digest"])[:6]
    text = f"{names}_n{population['size']}_seed{population['seed']}_{digest}"
    return re.sub(r"[^\w.-]", "-", text)


if __name__ == "__main__":
    sys.exit(main())
