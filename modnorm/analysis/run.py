"""A finished run, read from its directory alone, without a lab or a database."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar, cast

import pandas as pd
from pydantic import TypeAdapter, ValidationError

from modnorm.analysis.candidates import CANDIDATE_TYPES, CandidateRecord, candidate_records
from modnorm.analysis.document import SCHEMA, ResultsDocument
from modnorm.analysis.environments import Environment
from modnorm.analysis.parquet_files import (
    ANSWER_SCHEMA,
    VOTE_SCHEMA,
    Wanted,
    read_answers,
    read_descriptors,
    read_frame,
    read_votes,
)
from modnorm.analysis.run_data import BaseRow, EnsembleRow, select_ensemble
from modnorm.analysis.run_files import (
    ANSWERS,
    CANDIDATES,
    DISTILLATION,
    LINEAGE,
    PREDICTIONS,
    PROFILE,
    RESULTS,
    REWRITE,
    SCALE_MAP,
    SPEC,
    TIMINGS,
    VOTES,
    describe_seconds,
    not_a_run,
    rows_file,
    runs_inside,
    unreadable,
)
from modnorm.analysis.votes import VoteRecord
from modnorm.errors import InvalidInputError, NotFoundError, PreconditionError
from modnorm.files import read_fault
from modnorm.geometry.scale_map import ScaleMap
from modnorm.hints import require_name
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage
from modnorm.search.answers import BASE_INDEX, SPLITS, AnswerRecord
from modnorm.spec import ExperimentSpec, load_spec
from modnorm.spec.section import located_fault

_FIELD = "run"
DocumentT = TypeVar("DocumentT")
_COLUMNS = ("population", "ensemble_size", "metric", "lower", "upper", "correct", "rows")
"""Columns of the table of a run."""
_VOTE_COUNTS = MappingProxyType(
    {
        **dict.fromkeys(("population", "ensemble_size", "row", "correct_support"), "int64"),
        "correct": "bool",
    }
)
_CHECK = TypeAdapter(ResultsDocument)
"""Checks the JSON of `results.json`, and ignores fields of newer versions."""


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run; `load_run` reads a directory, `modnorm.Client.run` a lab.

    Files other than `results.json` are read when they are asked for.
    """

    path: Path
    """The directory."""
    document: ResultsDocument = field(repr=False)
    """The content of `results.json`."""
    name: str
    """Name of the directory, or in a comparison as much of its path as tells runs apart."""

    @cached_property
    def spec(self) -> ExperimentSpec:
        """The experiment's spec."""
        return stored_spec(self.path)

    @property
    def provenance(self) -> Mapping[str, object]:
        """Digests and names of all inputs of the results."""
        return self.document["provenance"]

    @property
    def base(self) -> BaseRow:
        """The unperturbed model; without counts, times and environments."""
        base = self.document["base"]
        return BaseRow(base["selection_reward"], base["heldout_metric"])

    @cached_property
    def candidates(self) -> tuple[CandidateRecord, ...]:
        """The population in candidate order, without the base."""
        return candidate_records(self.candidates_frame)

    @cached_property
    def candidates_frame(self) -> pd.DataFrame:
        """`candidates.csv` as a table of pandas.

        Raises:
            InvalidInputError: the file is missing or damaged.
        """
        path = self.path / CANDIDATES
        try:
            # Text is converted exactly; not every version of pandas parses numbers exactly.
            text = pd.read_csv(path, usecols=list(CANDIDATE_TYPES), dtype=str)
            return text.astype(dict(CANDIDATE_TYPES))[list(CANDIDATE_TYPES)]
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from error

    @property
    def ensembles(self) -> tuple[EnsembleRow, ...]:
        """The ensembles, by N, then by K."""
        return tuple(
            EnsembleRow(
                population=entry["population"],
                ensemble_size=entry["ensemble_size"],
                experts=tuple(entry["experts"]),
                metric=entry["metric"],
                correct=entry["correct"],
                rows=entry["rows"],
            )
            for entry in self.document["ensembles"]
        )

    def ensemble(
        self, population: int | None = None, ensemble_size: int | None = None
    ) -> EnsembleRow:
        """Return the ensemble (N, K); None stands for the largest.

        Raises:
            NotFoundError: the run does not report it.
        """
        return select_ensemble(self.ensembles, population, ensemble_size)

    def answers(
        self,
        candidate: int | None = None,
        split: str | None = None,
        row: int | None = None,
        *,
        wrong: bool = False,
    ) -> Iterator[AnswerRecord]:
        """Return an iterator over the matching answers by candidate, then split, then row.

        Args:
            candidate: Index in the population; -1 is the base. All when absent.
            split: `selection`, `heldout` or `development`. All when absent.
            row: Row of the split. All when absent.
            wrong: Whether to return wrong answers only.

        Raises:
            InvalidInputError: there is no such split.
            NotFoundError: the run has no such candidate, split or row.
        """
        self._require_candidate(candidate)
        self._require_place(split, row)
        wanted: dict[str, Wanted] = {"candidate": candidate, "split": split, "row": row}
        wanted["correct"] = False if wrong else None
        return read_answers(self.path, **wanted)

    def votes(
        self,
        row: int | None = None,
        population: int | None = None,
        ensemble_size: int | None = None,
    ) -> Iterator[VoteRecord]:
        """Return an iterator over the votes by N, then K, then row; of all ensembles, or of some.

        Raises:
            NotFoundError: no such row was voted on, or there is no ensemble of this N and K.
        """
        rows = self.ensemble(population, ensemble_size).rows
        if row is not None and not 0 <= row < rows:
            raise NotFoundError(
                f"no row {row} was voted on", field="row", remedy=f"name one of 0 to {rows - 1}"
            )
        return read_votes(self.path, row=row, population=population, ensemble_size=ensemble_size)

    def answers_frame(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return `answers.parquet` as a table of pandas.

        Args:
            columns: Columns to read; all when absent. Prompts and completions take most memory.

        Raises:
            InvalidInputError: there is no `answers.parquet` of this version, or no such column.
        """
        return read_frame(self.path / ANSWERS, ANSWER_SCHEMA, columns)

    def votes_frame(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return `votes.parquet` as a table of pandas; arguments and errors as `answers_frame`."""
        return read_frame(self.path / VOTES, VOTE_SCHEMA, columns)

    def vote_counts(self) -> pd.DataFrame:
        """Return the outcome of each vote and how many experts were right, by N, K and row."""
        return self.votes_frame(list(_VOTE_COUNTS)).astype(dict(_VOTE_COUNTS))

    def rows(self, split: str) -> tuple[str, ...]:
        """Return the rows of a split, each as JSON; none if the run has no development rows.

        Raises:
            InvalidInputError: there is no split of this name.
        """
        require_name(split, SPLITS, "split", "split")
        return tuple((self._text(rows_file(split)) or "").splitlines())

    def descriptors(self, candidate: int | None = None) -> Iterator[tuple[int, Descriptor]]:
        """Yield index and resolved descriptor of each candidate, the base first, or of one.

        Raises:
            NotFoundError: the run has no such candidate.
        """
        self._require_candidate(candidate)
        return read_descriptors(self.path, candidate)

    def scale_map(self) -> ScaleMap | None:
        """Return the scale map that the candidates were drawn with."""
        text = self._text(SCALE_MAP)
        return None if text is None else ScaleMap.from_json(text)

    def profile(self) -> str | None:
        """Return the profile as JSON; None if the method uses none."""
        return self._text(PROFILE)

    def lineage(self) -> Lineage | None:
        """Return the lineage of the state that is reported; None unless a model was trained."""
        text = self._text(LINEAGE)
        return None if text is None else Lineage.from_json(text)

    def timings(self) -> Mapping[str, object]:
        """Return the content of `timings.json`."""
        path = self.path / TIMINGS
        try:
            timings = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from error
        if not isinstance(timings, dict):
            raise InvalidInputError(f"{path} holds no JSON object", field="run")
        return timings

    def environments(self) -> Sequence[Environment]:
        """Return the environments in which the answers were given."""
        listed = self.timings().get("environments")
        found = listed if isinstance(listed, list) else []
        return [each for each in found if isinstance(each, dict)]

    def seconds(self) -> str | None:
        """Return the seconds of each phase in words; None where unknown."""
        return describe_seconds(self.timings()) if (self.path / TIMINGS).exists() else None

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with one line for each ensemble.

        Columns: `population`, `ensemble_size`, `metric`, `lower`, `upper`, `correct`, `rows`.
        `lower` and `upper` bound the 95 % Wilson interval; they are NaN if there is none.
        """
        ensembles = self.document["ensembles"]
        table = pd.DataFrame(ensembles, columns=list(_COLUMNS))
        for place, bound in enumerate(("lower", "upper")):
            bounds = [(each["interval"] or (None, None))[place] for each in ensembles]
            table[bound] = pd.Series(bounds, dtype=float)
        return table

    def _require_candidate(self, candidate: int | None) -> None:
        if candidate is None:
            return
        count, iterative = self.document["candidates"]["total"], self.spec.iterative
        last = BASE_INDEX - (iterative.updates if iterative else 0)
        if not last <= candidate < count:
            states = f"; {BASE_INDEX - 1} to {last} are the states after updates"
            raise NotFoundError(
                f"the run has no candidate {candidate}",
                field="candidate",
                remedy=f"name one of 0 to {count - 1}, or {BASE_INDEX} for the base"
                f"{states if iterative else ''}",
            )

    def _require_place(self, split: str | None, row: int | None) -> None:
        """Refuse a split or a row that the run does not have."""
        if split is not None:
            require_name(split, SPLITS, "split", "split")
        if split is None and row is None:
            return
        known = {name: count for name in SPLITS if (count := len(self.rows(name)))}
        if split is not None and split not in known:
            raise NotFoundError(
                f"the run has no {split} rows",
                field="split",
                remedy=f"name one of {', '.join(known)}",
            )
        counts = {name: count for name, count in known.items() if split in {None, name}}
        if row is not None and not 0 <= row < max(counts.values(), default=0):
            ends = ", ".join(f"0 to {count - 1} ({name})" for name, count in counts.items())
            raise NotFoundError(f"the run has no row {row}", field="row", remedy=f"name {ends}")

    def _text(self, name: str) -> str | None:
        path = self.path / name
        try:
            return path.read_text(encoding="utf-8") if path.is_file() else None
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from error


def load_run(directory: Path | str) -> Run:
    """Return the finished run in a directory.

    Raises:
        InvalidInputError: it is not the directory of one run, or its `results.json` is damaged;
            names the field.
        PreconditionError: the run has not finished, or is a distillation or votes only.
    """
    path = Path(directory)
    results = path / RESULTS
    if not results.is_file():
        raise _no_results(path)
    document = read_document(results, SCHEMA, "run", _CHECK)
    return Run(path, document, path.resolve().name)


def read_document(path: Path, schema: str, kind: str, check: TypeAdapter[DocumentT]) -> DocumentT:
    """Return the JSON document of a run or of a distillation; fields of newer versions stay."""
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text)
    except (OSError, RecursionError, ValueError) as error:
        raise InvalidInputError(
            f"cannot read {path}: {read_fault(error)}",
            field="directory",
            remedy=f"name the folder that a finished {kind} was written to"
            if isinstance(error, FileNotFoundError)
            else REWRITE,
        ) from error
    if not isinstance(document, dict) or document.get("schema") != schema:
        raise InvalidInputError(
            f"{path} does not have the schema {schema}",
            field="directory",
            remedy=f"another version wrote it: run this {kind} again, in another directory",
        )
    try:
        check.validate_json(text, strict=True)
    except ValidationError as error:
        raise InvalidInputError(
            f"{path} is damaged: {located_fault(error)}",
            field="directory",
            remedy=f"copy the directory again; where the {kind} was made, delete this file, and "
            "the same command writes it again",
        ) from error
    return cast("DocumentT", document)


def stored_spec(directory: Path) -> ExperimentSpec:
    """Return the spec of a run directory, finished or not.

    Raises:
        InvalidInputError: it is missing or damaged.
    """
    path = directory / SPEC
    if not path.is_file():
        raise unreadable(path, FileNotFoundError())
    return load_spec(path)


def load_runs(directories: Sequence[Path | str]) -> list[Run]:
    """Return finished runs under distinct names.

    Directories of equal names are named with the folders above them, as far as needed.

    Raises:
        InvalidInputError: a directory is named twice, or as `load_run`.
        PreconditionError: as `load_run`.
    """
    paths = list(map(Path, directories))
    places = [path.resolve() for path in paths]
    for directory, place in zip(paths, places, strict=True):
        if places.count(place) > 1:
            raise InvalidInputError(
                f"{directory} is named twice", field=_FIELD, remedy="name each run once"
            )
    names, parts = [place.name for place in places], 1
    while len(set(names)) < len(names):
        parts += 1
        names = ["/".join(place.parts[-parts:]) for place in places]
    return [replace(load_run(path), name=name) for path, name in zip(paths, names, strict=True)]


def _no_results(path: Path) -> InvalidInputError | PreconditionError:
    """Return the error for a directory without `results.json`."""
    if (path / DISTILLATION).is_file():
        first = path / "rounds" / "1"
        return PreconditionError(
            f"{path} is a distillation, not a search",
            field=_FIELD,
            remedy=f"name one of its searches, {first}; its students are models: "
            f"{first / 'training' / 'student'}",
        )
    if (path / PREDICTIONS).is_file():
        return PreconditionError(
            "the experiment answers questions and has no results of a search",
            field=_FIELD,
            remedy=f"its answers are in {path / PREDICTIONS}",
        )
    if (path / SPEC).is_file():
        return PreconditionError(
            f"only an experiment that succeeded has results, and {path} has none",
            field=_FIELD,
            remedy="`modnorm run` resumes an interrupted run; for a run of a lab, name its id and "
            "the lab with --server or MODNORM_SERVER",
        )
    if inside := runs_inside(path):
        return InvalidInputError(
            f"{path} holds several runs",
            field=_FIELD,
            remedy=f"name one: {', '.join(map(str, inside))}",
        )
    return not_a_run(path)
