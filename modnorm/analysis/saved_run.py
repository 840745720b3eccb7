"""A finished run, read from its directory alone, without a lab or a database."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from modnorm.analysis.answers import ALL, AnswerFilter, AnswerRecord, require_split
from modnorm.analysis.comparison import load_results
from modnorm.analysis.descriptors import read_descriptors
from modnorm.analysis.document import ResultsDocument
from modnorm.analysis.parquet_files import read_answers, read_votes
from modnorm.analysis.records import LINEAGE, PROFILE, SCALE_MAP, rows_file
from modnorm.analysis.run_data import BaseRow, CandidateRow, EnsembleRow
from modnorm.analysis.run_files import DISTILLATION, PREDICTIONS, RESULTS, SPEC, unreadable
from modnorm.analysis.votes import ALL as ALL_VOTES
from modnorm.analysis.votes import VoteFilter, VoteRecord
from modnorm.analysis.wanted import require_candidate
from modnorm.arguments import require_path
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage
from modnorm.search.stopping import Interval
from modnorm.spec import ExperimentSpec, load_spec

_FIELD = "run"


class SavedRun:
    """The directory of a run.

    Args:
        path: The directory.

    Raises:
        InvalidInputError: it is not the directory of one run.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = require_path(path, "directory")
        if not (self.path / SPEC).is_file():
            raise _no_run(self.path)

    @cached_property
    def spec(self) -> ExperimentSpec:
        """The experiment's spec."""
        return load_spec(self.path / SPEC)

    @cached_property
    def document(self) -> ResultsDocument:
        """The content of `results.json`.

        Raises:
            PreconditionError: the run has not finished, or is a distillation or votes only.
        """
        if (self.path / DISTILLATION).is_file():
            raise PreconditionError(
                f"{self.path} is a distillation, not a search",
                field=_FIELD,
                remedy=f"name one of its searches, {self.path / 'rounds' / '1'}; its students are "
                f"models: {self.path / 'rounds' / '1' / 'training' / 'student'}",
            )
        if (self.path / PREDICTIONS).is_file():
            raise PreconditionError(
                "the experiment answers questions and has no results of a search",
                field=_FIELD,
                remedy=f"its answers are in {self.path / PREDICTIONS}",
            )
        if not (self.path / RESULTS).is_file():
            raise PreconditionError(
                f"only an experiment that succeeded has results, and {self.path} has none",
                field=_FIELD,
                remedy="`modnorm run` resumes an interrupted run; for a run of a lab, name its "
                "id and the lab with --server or MODNORM_SERVER",
            )
        return load_results(self.path).document

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
    def candidates(self) -> Sequence[CandidateRow]:
        """The population in candidate order; without times, workers and environments."""
        _ = self.document  # without results the other files may not be whole
        path = self.path / "candidates.csv"
        try:
            with path.open(newline="", encoding="utf-8") as file:
                return tuple(map(_candidate, csv.DictReader(file)))
        except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
            raise unreadable(path, error) from error

    @property
    def ensembles(self) -> Sequence[EnsembleRow]:
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

    def rows(self, split: str) -> tuple[str, ...]:
        """Return the rows of a split, each as JSON; none if the run has no development rows.

        Raises:
            InvalidInputError: there is no split of this name.
        """
        require_split(split)
        text = self._text(rows_file(split))
        return tuple((text or "").splitlines())

    def answers(self, wanted: AnswerFilter = ALL) -> Iterator[AnswerRecord]:
        """Yield answers by candidate, then split, then row."""
        _ = self.document
        return read_answers(self.path, wanted)

    def votes(self, wanted: VoteFilter = ALL_VOTES) -> Iterator[VoteRecord]:
        """Yield votes by N, then K, then row."""
        _ = self.document
        return read_votes(self.path, wanted)

    def descriptors(self, candidate: int | None = None) -> Iterator[tuple[int, Descriptor]]:
        """Yield index and resolved descriptor of each candidate, the base first, or of one."""
        _ = self.document
        require_candidate(candidate, self.candidates, self.spec)
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

    def _text(self, name: str) -> str | None:
        """Return the text of a file of the finished run; None if there is no such file."""
        _ = self.document
        path = self.path / name
        try:
            return path.read_text(encoding="utf-8") if path.is_file() else None
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from error


def _candidate(row: Mapping[str, str]) -> CandidateRow:
    stopped = row["reward_lower"] and Interval(
        float(row["reward_lower"]), float(row["reward_upper"])
    )
    return CandidateRow(
        index=int(row["index"]),
        seed=int(row["seed"]),
        state=row["state"],
        selection_reward=_number(row["selection_reward"]),
        stopped=stopped or None,
        heldout_metric=_number(row["heldout_metric"]),
        selection_tokens=int(row["selection_tokens"]),
        selection_answers=int(row["selection_answers"]),
        selection_correct=int(row["selection_correct"]),
        selection_valid=int(row.get("selection_valid", 0)),
        selection_truncated=int(row.get("selection_truncated", 0)),
        heldout_answers=int(row.get("heldout_answers", 0)),
        heldout_valid=int(row.get("heldout_valid", 0)),
        heldout_truncated=int(row.get("heldout_truncated", 0)),
    )


def _number(cell: str) -> float | None:
    return float(cell) if cell else None


def _no_run(path: Path) -> InvalidInputError:
    inside = sorted(str(child) for child in path.glob("*/") if (child / SPEC).is_file())
    if inside:
        return InvalidInputError(
            f"{path} holds several runs", field=_FIELD, remedy=f"name one: {', '.join(inside)}"
        )
    return InvalidInputError(
        f"{path} is not a run directory" if path.exists() else f"there is no directory {path}",
        field=_FIELD,
        remedy="name what `modnorm run` wrote, or an experiment's id and its lab with --server or "
        "MODNORM_SERVER",
    )
