"""Small copies of finished runs: figures, and the reward and vote of each answer, without texts.

A copy is one ZIP file of about a hundred kilobytes. Unpacked, it is a run directory without rows
and coefficients. Its votes are not stored, but counted from its answers.

`origin.json` has the digests of the files that the run wrote. Where a copy holds a file in a later
form, `converted` has the digest of that form.

In eight runs experts left out held-out rows whose votes were settled. An answer that is missing
counts as invalid, which changes no winner; the agreement of such votes is null. In some of these
runs candidates that could be no experts have no score: there are no statistics then, and experts
have their ranks among the known scores.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from modnorm.analysis.parquet_files import ANSWER_SCHEMA, read_ballots
from modnorm.analysis.run import Run
from modnorm.analysis.run_files import (
    ANSWERS,
    CANDIDATES,
    RESULTS,
    SPEC,
    TIMINGS,
    rescored_file,
    unreadable,
)
from modnorm.client.rescoring import RescoredDocument
from modnorm.errors import InvalidInputError
from modnorm.files import encode_json, write_file
from modnorm.search.answers import SPLITS
from modnorm.search.voting import RowVote, count_votes

ORIGIN = "origin.json"
"""Name of the file that only copies have: what made the run."""
_KEPT = "kept-answers.parquet"
"""Member of an archive: answers without texts and tokens, in the order that compresses best."""
_TEXTS = (SPEC, RESULTS, CANDIDATES)
_COLUMNS = ("split", "row", "candidate", "vote", "reward", "correct", "truncated")
_TYPES = {"split": "category", "vote": "category", "row": "int16", "candidate": "int16"}
_COUNTS = tuple(each.name for each in fields(RowVote))
_DATE = (1980, 1, 1, 0, 0, 0)
"""Of all members, so that equal runs have equal copies."""


@dataclass(frozen=True, eq=False)
class RunCopy(Run):
    counted: pd.DataFrame = field(repr=False)
    """The outcome of each vote, counted from answers: `count_ensemble` by (N, K)."""

    @cached_property
    def full_voters(self) -> frozenset[int]:
        """The models that answered all held-out rows."""
        answers = self.answers_frame(["candidate", "split"])
        given = answers["candidate"][answers["split"] == "heldout"].value_counts()
        rows = self.document["data"]["heldout"]["rows"]
        return frozenset(given.index[given == rows])

    def rescored(self) -> list[RescoredDocument]:
        """Return the documents of `modnorm rescore`, one for each other scorer that was used."""
        paths = sorted(self.path.glob(rescored_file("*")))
        return [json.loads(path.read_bytes()) for path in paths]

    def votes_frame(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        return self.counted if columns is None else self.counted[[*columns]]

    def vote_counts(self) -> pd.DataFrame:
        """Return the outcome of each vote; right experts are missing if experts left out rows."""
        counts = super().vote_counts()
        for each in self.ensembles:
            if not self.full_voters >= {*each.experts}:
                place = counts[["population", "ensemble_size"]] == [
                    each.population,
                    each.ensemble_size,
                ]
                counts["correct_support"] = counts["correct_support"].mask(place.all(axis=1))
        return counts


def pack_run(run: Run, archive: Path, origin: Mapping[str, str]) -> None:
    """Write a small copy of a finished run."""
    # Equal values beside each other compress best, and selection votes decide nothing.
    answers = run.answers_frame(_COLUMNS).sort_values(["split", "row", "candidate"])
    kept = answers.assign(vote=answers["vote"].where(answers["split"] == "heldout"))[[*_COLUMNS]]
    counts = run.vote_counts()
    counted = _count_votes(run)[counts.columns]
    if not counts.astype(counted.dtypes).equals(counted):
        raise InvalidInputError(f"votes of {run.path} do not follow from answers", field="run")
    rescored = sorted(path.name for path in run.path.glob(rescored_file("*")))
    texts = {name: (run.path / name).read_bytes() for name in (*_TEXTS, *rescored)}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in texts.items()}
    timings = run.timings()
    assert isinstance(timings["candidates"], list)
    nameless = [{**each, "worker": ""} for each in timings["candidates"]]  # no name of a machine
    members = {
        ORIGIN: encode_json({**origin, "digests": digests}),
        **texts,
        TIMINGS: encode_json({**timings, "candidates": nameless}),
        _KEPT: _encode(pa.Table.from_pandas(kept.astype(_TYPES), preserve_index=False)),
    }
    write_archive(archive, members)


def write_archive(archive: Path, members: Mapping[str, bytes]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            # Parquet is compressed already.
            how = zipfile.ZIP_STORED if name == _KEPT else zipfile.ZIP_DEFLATED
            file.writestr(zipfile.ZipInfo(name, _DATE), content, how, 9)
    write_file(archive, buffer.getvalue())


def unpack_run(archive: Path, directory: Path) -> RunCopy:
    """Write the directory of a copy and return the run in it."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(archive) as file:
            origin = json.loads(file.read(ORIGIN))
            digests = origin["digests"] | origin.get("converted", {})
            texts = [*dict.fromkeys((*_TEXTS, *filter(digests.get, file.namelist())))]
            members = {name: file.read(name) for name in (ORIGIN, *texts, TIMINGS, _KEPT)}
        frame = parquet.read_table(io.BytesIO(members.pop(_KEPT))).to_pandas()
    except (OSError, KeyError, ValueError, pa.ArrowException, zipfile.BadZipFile) as error:
        raise unreadable(archive, error) from error
    wrong = [
        name
        for name in texts
        if Path(name).name != name or hashlib.sha256(members[name]).hexdigest() != digests[name]
    ]
    if wrong:
        raise InvalidInputError(f"{archive} is damaged: {', '.join(wrong)}", field="cell")
    for name, content in members.items():
        (directory / name).write_bytes(content)
    write_kept_answers(directory, frame)
    run = Run(directory, json.loads(members[RESULTS]), directory.name)
    return RunCopy(run.path, run.document, run.name, _count_votes(run))


def write_kept_answers(directory: Path, frame: pd.DataFrame) -> None:
    """Write `answers.parquet` from answers that have no texts, in any order."""
    order = frame["split"].astype("str").map(SPLITS.index)
    sheets = frame.assign(order=order).sort_values(["candidate", "order", "row"])
    whole = sheets.assign(prompt=None, gold=None, completion="", tokens=0)
    answers = pa.Table.from_pandas(whole, ANSWER_SCHEMA, preserve_index=False)
    parquet.write_table(answers, directory / ANSWERS)


def count_ensemble(place: tuple[int, int], votes: Sequence[RowVote]) -> pd.DataFrame:
    """Return the votes of an ensemble (N, K) as lines of `votes.parquet`, without the ballots."""
    return pd.DataFrame(
        {
            **dict(zip(("population", "ensemble_size"), place, strict=True)),
            "row": range(len(votes)),
            **{name: [getattr(vote, name) for vote in votes] for name in _COUNTS},
        }
    )


def _count_votes(run: Run) -> pd.DataFrame:
    """Count the votes of all ensembles from the answers of their experts."""
    ballots, _ = read_ballots(run.path, run.document["data"]["heldout"]["rows"])
    counts = [
        count_ensemble(each.place, count_votes([ballots[expert] for expert in each.experts]))
        for each in run.ensembles
    ]
    return pd.concat(counts, ignore_index=True)


def _encode(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(
        table.replace_schema_metadata(None), sink, compression="zstd", compression_level=19
    )
    return sink.getvalue()
