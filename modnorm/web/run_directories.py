"""Run directories as sources of the pages."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import cast

from pyarrow import dataset

from modnorm.analysis.answers import AnswerFilter, AnswerRecord
from modnorm.analysis.comparison import ComparisonRow, Results, compare_runs
from modnorm.analysis.document import ResultsDocument
from modnorm.analysis.parquet_files import ANSWER_SCHEMA, ANSWERS
from modnorm.analysis.parquet_lines import equal, read_lines
from modnorm.analysis.saved_run import RESULTS, SPEC, SavedRun
from modnorm.analysis.votes import VoteFilter, VoteRecord
from modnorm.errors import InvalidInputError
from modnorm.web.population import CandidatePage, CandidateQuery, read_page, read_table
from modnorm.web.sources import Run

_CANDIDATES = "candidates.csv"


class DirectoryRun:
    """A run directory; implements `modnorm.web.sources.Run`.

    Args:
        path: The directory.
        name: Its name in addresses.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self._saved = SavedRun(path)

    @property
    def finished(self) -> bool:
        """Whether it has results."""
        return (self.path / RESULTS).is_file()

    @cached_property
    def spec(self) -> Mapping[str, object]:
        """The spec as JSON values."""
        try:
            content = json.loads((self.path / SPEC).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise _damaged(self.path / SPEC, str(error)) from error
        if not isinstance(content, dict):
            raise _damaged(self.path / SPEC, "it holds no object")
        return cast("Mapping[str, object]", content)

    @property
    def document(self) -> ResultsDocument:
        """The results."""
        return self._saved.document

    def rewards(self) -> list[float]:
        """Return all complete selection rewards, in candidate order."""
        rewards = read_table(self.path / _CANDIDATES)["selection_reward"]
        return cast("list[float]", rewards.drop_null().to_pylist())

    def candidates(self, query: CandidateQuery) -> CandidatePage:
        """Return one page of candidates."""
        return read_page(self.path / _CANDIDATES, query)

    def answers(self, wanted: AnswerFilter) -> Iterator[AnswerRecord]:
        """Yield answers by candidate, then split, then row."""
        return self._saved.answers(wanted)

    def answers_of(self, candidates: Sequence[int], row: int) -> Mapping[int, AnswerRecord]:
        """Return the answers of some candidates to one held-out row, by candidate."""
        lines = read_lines(
            self.path / ANSWERS,
            ANSWER_SCHEMA,
            conditions=[
                *equal(split="heldout", row=row),
                dataset.field("candidate").isin(list(candidates)),
            ],
        )
        return {line["candidate"]: AnswerRecord(**line) for line in lines}

    def votes(self, wanted: VoteFilter) -> Iterator[VoteRecord]:
        """Yield votes by N, then K, then row."""
        return self._saved.votes(wanted)


class DirectoryCatalog:
    """The runs in some directories; implements `modnorm.web.sources.Catalog`.

    Args:
        paths: Run directories, or directories that contain run directories.

    Raises:
        InvalidInputError: a path is not a run directory and holds none.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = [path.resolve() for path in paths]
        for path in self._paths:
            if not _run_directories(path):
                raise InvalidInputError(
                    f"{path} is not a run directory, and holds none",
                    field="run",
                    remedy="name a directory that `modnorm run` wrote",
                )

    def runs(self) -> Sequence[DirectoryRun]:
        """Return the present runs, in the order of the paths."""
        found = dict.fromkeys(run for path in self._paths for run in _run_directories(path))
        names = [path.name for path in found]
        return [
            DirectoryRun(
                path, path.name if names.count(path.name) == 1 else f"{number}-{path.name}"
            )
            for number, path in enumerate(found, 1)
        ]

    def compare(self, runs: Sequence[Run]) -> list[ComparisonRow]:
        """Set finished runs side by side, under their names in addresses."""
        paths = {run.name: run.path for run in self.runs()}
        return compare_runs([Results(paths[run.name], run.document) for run in runs])


def _run_directories(path: Path) -> list[Path]:
    if (path / SPEC).is_file():
        return [path]
    return sorted(child for child in path.glob("*/") if (child / SPEC).is_file())


def _damaged(path: Path, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"cannot read {path}: {reason}", field="run", remedy="copy the whole directory of the run"
    )
