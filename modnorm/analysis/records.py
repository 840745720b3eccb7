"""The records of a run directory: the inputs of its figures, so that readers need no lab.

- `rows/SPLIT.jsonl`: the rows, one line each, in the task's schema
- `scale_map.json`, `profile.json`, `descriptors.parquet`: the inputs of the candidates' weights
- `lineage.json`: the steps of a model that an iterative method trained
- `answers.parquet`: the answer of each model to each row
- `votes.parquet`: each vote with all of its ballots
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from modnorm.analysis.answers import AnswerRecord
from modnorm.analysis.descriptors import write_descriptors
from modnorm.analysis.parquet_files import read_ballots, write_answers, write_votes
from modnorm.analysis.run_data import RunData
from modnorm.analysis.votes import vote_records
from modnorm.files import write_file
from modnorm.perturbation.descriptor import Descriptor

SCALE_MAP, PROFILE, LINEAGE = "scale_map.json", "profile.json", "lineage.json"
"""Names of the files in a run directory."""


def rows_file(split: str) -> str:
    """Return the name of the file that holds the rows of a split."""
    return f"rows/{split}.jsonl"


@dataclass(frozen=True)
class RunRecords:
    """The records of a run; iterators are read once, part by part."""

    rows: Mapping[str, Sequence[str]]
    """By split, each row as JSON in the task's schema; none of a split without rows."""
    texts: Mapping[str, str]
    """Scale map, profile and lineage by file name, those that the run has."""
    descriptors: Iterable[tuple[int, Descriptor]]
    """Index and resolved descriptor of each candidate, the base first."""
    answers: Iterable[AnswerRecord]
    """By candidate, then split, then row."""


def write_records(directory: Path, records: RunRecords, run: RunData) -> None:
    """Write a run's records into a directory, which is created if needed; replace older ones.

    Args:
        directory: The run directory.
        records: The records.
        run: The run, whose votes are written with each expert's ballot.

    Raises:
        OSError: the directory cannot be written.
    """
    (directory / "rows").mkdir(parents=True, exist_ok=True)
    for split, rows in records.rows.items():
        if rows:
            content = "".join(f"{row}\n" for row in rows).encode()
            write_file(directory / rows_file(split), content)
    for name, text in records.texts.items():
        write_file(directory / name, text.encode())
    write_descriptors(directory, records.descriptors)
    write_answers(directory, records.answers)
    ballots, golds = read_ballots(directory, len(records.rows["heldout"]))
    ensembles = sorted(run.ensembles, key=lambda each: (each.population, each.ensemble_size))
    votes = (
        vote_records(each, run.votes[each.population, each.ensemble_size], ballots, golds)
        for each in ensembles
    )
    write_votes(directory, chain.from_iterable(votes))
