"""The files of a run directory (`modnorm.analysis.run_files`) that follow from its data.

Every file is a function of the run's data and is written whole or not at all.
"""

import csv
import io
import time
from collections.abc import Iterable
from dataclasses import astuple
from itertools import chain
from pathlib import Path

from modnorm.analysis.candidates import CANDIDATE_TYPES, ranked_candidates
from modnorm.analysis.document import results_document
from modnorm.analysis.environments import environments_of, places
from modnorm.analysis.parquet_files import (
    read_ballots,
    write_answers,
    write_descriptors,
    write_votes,
)
from modnorm.analysis.plots import draw_plots, plot_data
from modnorm.analysis.report import render_report
from modnorm.analysis.run_data import RunData
from modnorm.analysis.run_files import CANDIDATES, PLOTS, REPORT, REPORTING, RESULTS, TIMINGS
from modnorm.analysis.statistics import repeated_attempts, timing_scope
from modnorm.analysis.votes import vote_records
from modnorm.files import encode_json, write_file
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.answers import AnswerRecord


def write_run(
    directory: Path,
    run: RunData,
    descriptors: Iterable[tuple[int, Descriptor]] = (),
    answers: Iterable[AnswerRecord] = (),
    *,
    started: float | None = None,
) -> None:
    """Write the files that follow from a run into a directory; older ones are replaced.

    Args:
        directory: Made where absent.
        run: The run.
        descriptors: Index and resolved descriptor of each candidate, the base first.
        answers: By candidate, then split, then row; read once, part by part.
        started: When the writing began, by `time.monotonic`; it is timed if this is given.
    """
    (directory / PLOTS).mkdir(parents=True, exist_ok=True)
    write_descriptors(directory, descriptors)
    write_answers(directory, answers)
    ballots, golds = read_ballots(directory, run.data["heldout"]["rows"])
    ensembles = sorted(run.ensembles, key=lambda each: each.place)
    votes = (vote_records(each, run.votes[each.place], ballots, golds) for each in ensembles)
    write_votes(directory, chain.from_iterable(votes))
    document = results_document(run)
    plots = draw_plots(plot_data(run, document))
    for name, image in plots.items():
        write_file(directory / PLOTS / f"{name}.png", image)
    candidates = io.StringIO()
    writer = csv.writer(candidates, lineterminator="\n")
    writer.writerow(CANDIDATE_TYPES)
    writer.writerows(map(astuple, ranked_candidates(run.candidates, run.base)))
    write_file(directory / CANDIDATES, candidates.getvalue().encode())
    write_file(directory / REPORT, render_report(document, plots).encode())
    timings = _timings(run, None if started is None else time.monotonic() - started)
    write_file(directory / TIMINGS, encode_json(timings))
    write_file(directory / RESULTS, encode_json(document))


def _timings(run: RunData, report_seconds: float | None) -> dict[str, object]:
    known, timed = environments_of(run), run.timings.get("phases")
    phases = timed if isinstance(timed, dict) else {}
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
