"""The result files of a run directory, computed from the records of `modnorm.analysis.records`.

Every file is a function of the run's data and is written whole or not at all:

- `results.json`: everything that depends on the experiment alone; written last
- `candidates.csv`: one line for each candidate. A stopped candidate has bounds instead of a
  selection reward. A rank that depends on such bounds is empty.
- `votes.jsonl`: one line for each (N, K, row); with `skipped` experts the counts are partial
- `plots/*.png`: the report's plots
- `report.html`: one page, self-contained
- `timings.json`: everything that may differ between two runs of one experiment: times, workers,
  attempts, ids, failure reasons and environments. Base and candidates refer to an environment by
  its index in `environments`.
"""

import csv
import io
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, astuple
from pathlib import Path

from modnorm.analysis.candidate_records import COLUMNS, candidate_records
from modnorm.analysis.document import ResultsDocument, results_document
from modnorm.analysis.environments import environments_of, places
from modnorm.analysis.evaluations import repeated_attempts, timing_scope
from modnorm.analysis.phase_times import REPORTING
from modnorm.analysis.plots import draw_plots, plot_data
from modnorm.analysis.report import render_report
from modnorm.analysis.run_data import RunData
from modnorm.analysis.run_files import TIMINGS
from modnorm.files import encode_json, write_file


def write_run(directory: Path, run: RunData, *, started: float | None = None) -> ResultsDocument:
    """Write a run's files into a directory, made where absent; older ones are replaced.

    Args:
        directory: The directory.
        run: The run.
        started: When the work on the files began, by `time.monotonic`, for the seconds of the
            report.

    Returns:
        The content of `results.json`.

    Raises:
        OSError: the directory cannot be written.
    """
    document = results_document(run)
    plots = draw_plots(plot_data(run, document))
    (directory / "plots").mkdir(parents=True, exist_ok=True)
    for name, image in plots.items():
        write_file(directory / "plots" / f"{name}.png", image)
    write_file(directory / "candidates.csv", _candidates_csv(run).encode())
    write_file(directory / "votes.jsonl", "".join(_vote_lines(run)).encode())
    write_file(directory / "report.html", render_report(document, plots).encode())
    timings = _timings(run, None if started is None else time.monotonic() - started)
    write_file(directory / TIMINGS, encode_json(timings))
    write_file(directory / "results.json", encode_json(document))
    return document


def _candidates_csv(run: RunData) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(map(astuple, candidate_records(run.candidates, run.base)))
    return text.getvalue()


def _vote_lines(run: RunData) -> Iterator[str]:
    for population, size in sorted(run.votes):
        for vote in run.votes[population, size]:
            line = {"population": population, "ensemble_size": size, **asdict(vote)}
            yield f"{json.dumps(line, sort_keys=True)}\n"


def _timings(run: RunData, report_seconds: float | None) -> dict[str, object]:
    known, phases = environments_of(run), _phases(run)
    candidates = [
        {
            "index": candidate.index,
            "attempts": candidate.attempts,
            "worker": candidate.worker,
            "seconds": candidate.seconds,
            "heldout_attempts": candidate.heldout_attempts,
            "heldout_seconds": candidate.heldout_seconds,
            "error": candidate.error,
            **places(candidate, known),
        }
        for candidate in run.candidates
    ]
    return {
        **run.timings,
        "phases": phases if report_seconds is None else {**phases, REPORTING: report_seconds},
        "scope": timing_scope(run, phases),
        "repeated_attempts": repeated_attempts(run),
        "environments": [dict(sorted(environment.items())) for environment in known],
        "base": places(run.base, known),
        "candidates": candidates,
    }


def _phases(run: RunData) -> dict[str, float]:
    phases = run.timings.get("phases")
    return phases if isinstance(phases, dict) else {}
