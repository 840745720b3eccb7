"""A small copy of a finished run: its figures, and the reward and vote of each answer, no texts.

A copy is one ZIP file of about a hundred kilobytes. Unpacked, it is a run directory that tables
and figures read, without completions, rows and coefficients.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from modnorm.analysis.comparison import load_results
from modnorm.analysis.document import ResultsDocument
from modnorm.analysis.parquet_files import ANSWERS, answers_frame
from modnorm.analysis.run_files import RESULTS, SPEC, read_timings, unreadable
from modnorm.errors import InvalidInputError
from modnorm.files import encode_json, write_file
from modnorm.search.voting import Ballot, count_votes
from modnorm.tasks.protocol import Judgement

KEPT_ANSWERS, ORIGIN = "kept-answers.parquet", "origin.json"
"""Names of the files that only an unpacked copy has."""
VOTES, _TIMINGS = "votes.jsonl", "timings.json"
_TEXTS = (SPEC, RESULTS, "candidates.csv")
_COLUMNS = ("split", "row", "candidate", "vote", "reward", "correct", "truncated")
_ORDER = ["split", "row", "candidate"]
_DATE = (1980, 1, 1, 0, 0, 0)
"""Of all members, so that equal runs have equal copies."""


def pack_run(directory: Path, archive: Path, origin: Mapping[str, str]) -> None:
    """Write a small copy of a finished run.

    Args:
        directory: The run directory.
        archive: The ZIP file.
        origin: What made the run: command, commit and the like. Digests of files are added.

    Raises:
        InvalidInputError: the directory holds no finished run, or its votes do not follow from
            its answers.
        OSError: the file cannot be written.
    """
    document = load_results(directory).document
    answers = answers_frame(directory, list(_COLUMNS)).sort_values(_ORDER)
    # Selection votes decide nothing; equal values beside each other compress best.
    kept = answers.assign(vote=answers["vote"].where(answers["split"] == "heldout"))[[*_COLUMNS]]
    digests = {
        name: _sha256((directory / name).read_bytes()) for name in (*_TEXTS, VOTES, ANSWERS)
    }
    votes = _vote_lines(document, kept)
    if _sha256(votes) != digests[VOTES]:
        raise InvalidInputError(
            f"{VOTES} of {directory} does not follow from its answers", field="run"
        )
    members = {
        ORIGIN: encode_json({**origin, "digests": digests}),
        **{name: (directory / name).read_bytes() for name in _TEXTS},
        _TIMINGS: encode_json(_nameless(read_timings(directory))),
        KEPT_ANSWERS: _encode(kept),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            # Parquet is compressed already.
            how = zipfile.ZIP_STORED if name == KEPT_ANSWERS else zipfile.ZIP_DEFLATED
            file.writestr(zipfile.ZipInfo(name, _DATE), content, how, 9)
    write_file(archive, buffer.getvalue())


def unpack_run(archive: Path, directory: Path) -> None:
    """Write the directory of a copy; votes are counted again and compared with the run's own.

    Raises:
        InvalidInputError: the copy is damaged, or its votes are not those of the run.
    """
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(archive) as file:
            for name in (ORIGIN, *_TEXTS, _TIMINGS, KEPT_ANSWERS):
                (directory / name).write_bytes(file.read(name))
        expected = json.loads((directory / ORIGIN).read_bytes())["digests"]
        digests = {name: _sha256((directory / name).read_bytes()) for name in _TEXTS}
        if digests.items() <= expected.items():
            votes = _vote_lines(load_results(directory).document, kept_answers(directory))
            digests[VOTES] = _sha256(votes)
            (directory / VOTES).write_bytes(votes)
        wrong = [name for name, digest in digests.items() if digest != expected[name]]
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise unreadable(archive, error) from error
    if wrong:
        raise InvalidInputError(f"{archive} is damaged: {', '.join(wrong)}", field="cell")


def kept_answers(directory: Path) -> pd.DataFrame:
    """Return the answers of an unpacked copy, by split, row and candidate.

    Columns: those of `answers.parquet` without texts and tokens; selection rows have no votes.

    Raises:
        InvalidInputError: the directory holds no copy.
    """
    path = directory / KEPT_ANSWERS
    try:
        frame: pd.DataFrame = parquet.read_table(path).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from error
    return frame


def _nameless(timings: Mapping[str, object]) -> dict[str, object]:
    """Return timings without the names of machines."""
    candidates = timings["candidates"]
    assert isinstance(candidates, list)  # noqa: S101 - every run lists them
    return {**timings, "candidates": [{**each, "worker": ""} for each in candidates]}


def _encode(kept: pd.DataFrame) -> bytes:
    types = {"split": "category", "vote": "category", "row": "int16", "candidate": "int16"}
    table = pa.Table.from_pandas(kept.astype(types), preserve_index=False)
    sink = io.BytesIO()
    parquet.write_table(
        table.replace_schema_metadata(None), sink, compression="zstd", compression_level=19
    )
    return sink.getvalue()


def _vote_lines(document: ResultsDocument, answers: pd.DataFrame) -> bytes:
    """Count the votes of all ensembles from the answers of their experts."""
    rows = document["data"]["heldout"]["rows"]
    ballots = dict(_ballots(answers, int(str(rows))))
    nothing = Ballot.from_partial_answers({}, int(str(rows)))
    places = {
        (entry["population"], entry["ensemble_size"]): entry["experts"]
        for entry in document["ensembles"]
    }
    lines = [
        json.dumps(
            {"population": population, "ensemble_size": size, "row": row, **asdict(vote)},
            sort_keys=True,
        )
        for (population, size), experts in sorted(places.items())
        for row, vote in enumerate(
            count_votes([ballots.get(expert, nothing) for expert in experts])
        )
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _ballots(answers: pd.DataFrame, rows: int) -> Iterator[tuple[int, Ballot]]:
    heldout = answers[answers["split"] == "heldout"].sort_values(["candidate", "row"])
    columns = heldout[["candidate", "row", "vote", "correct"]].astype({"vote": object})
    lines = zip(*(columns[name].tolist() for name in columns), strict=True)
    for candidate, sheet in groupby(lines, key=itemgetter(0)):
        said = {
            row: Judgement(0.0, vote if isinstance(vote, str) else None, correct)
            for _, row, vote, correct in sheet
        }
        yield candidate, Ballot.from_partial_answers(said, rows)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
