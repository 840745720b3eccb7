"""The records of a run directory: the inputs of its figures, so that readers need no lab.

- `rows/SPLIT.jsonl`: the rows, one line each, in the task's schema
- `scale_map.json`, `profile.json`, `descriptors.parquet`: the inputs of the candidates' weights
- `lineage.json`: the steps of a model that an iterative method trained
- `answers.parquet`: the answer of each model to each row
- `votes.parquet`: each vote with all of its ballots
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from modnorm.analysis.answers import SPLITS
from modnorm.analysis.descriptors import write_descriptors
from modnorm.analysis.finished_run import FinishedRun
from modnorm.analysis.parquet_files import read_ballots, write_answers, write_votes
from modnorm.analysis.run_data import VoteRow
from modnorm.analysis.votes import VoteRecord, vote_records
from modnorm.files import write_file

SCALE_MAP, PROFILE, LINEAGE = "scale_map.json", "profile.json", "lineage.json"
"""Names of the files in a run directory."""


def rows_file(split: str) -> str:
    """Return the name of the file that holds the rows of a split."""
    return f"rows/{split}.jsonl"


def write_records(
    directory: Path, run: FinishedRun, votes: Mapping[tuple[int, int], Sequence[VoteRow]]
) -> None:
    """Write a run's records into a directory, which is created if needed; replace older ones.

    Args:
        directory: The run directory.
        run: The run whose records are written.
        votes: Outcomes of the votes of each (N, K), in row order.

    Raises:
        OSError: the directory cannot be written.
    """
    (directory / "rows").mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        if rows := run.rows(split):
            content = "".join(f"{row}\n" for row in rows).encode()
            write_file(directory / rows_file(split), content)
    scale_map, lineage = run.scale_map(), run.lineage()
    texts = {
        SCALE_MAP: None if scale_map is None else scale_map.to_json(),
        PROFILE: run.profile(),
        LINEAGE: None if lineage is None else lineage.to_json(),
    }
    for name, text in texts.items():
        if text is not None:
            write_file(directory / name, text.encode())
    write_descriptors(directory, run.descriptors())
    write_answers(directory, run.answers())
    write_votes(directory, _votes(directory, run, votes))


def _votes(
    directory: Path, run: FinishedRun, votes: Mapping[tuple[int, int], Sequence[VoteRow]]
) -> Iterator[VoteRecord]:
    """Yield the votes with each expert's ballot, which is read from `answers.parquet`."""
    ballots, golds = read_ballots(directory, len(run.rows("heldout")))
    for ensemble in run.ensembles:
        found = votes[ensemble.population, ensemble.ensemble_size]
        yield from vote_records(ensemble, found, ballots, golds)
