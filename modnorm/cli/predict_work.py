"""What `modnorm predict` does: finds an ensemble, asks it and writes its answers."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from modnorm.cli.console import emit_json, stderr
from modnorm.cli.interruption import interruptible
from modnorm.cli.runs import opened_run
from modnorm.files import check_writable
from modnorm.prediction.ensemble_definition import EnsembleDefinition, define_ensemble
from modnorm.prediction.manifest import read_manifest
from modnorm.prediction.question_files import answer_line, whole_file
from modnorm.prediction.run_predictions import PredictionSettings, Predictor
from modnorm.tasks.questions import read_questions

if TYPE_CHECKING:
    from modnorm.prediction.ranked_votes import Prediction


@dataclass(frozen=True, slots=True)
class Asked:
    """The ensemble that the command line names."""

    source: str
    """Directory of a run, id of an experiment, or file of a manifest."""
    server: str | None
    """The lab that ran it."""
    population: int | None
    size: int | None

    @property
    def is_manifest(self) -> bool:
        """Whether the source is a manifest."""
        return self.server is None and Path(self.source).is_file()

    def find(self) -> EnsembleDefinition:
        """Return the ensemble's definition; see `define_ensemble` and `Manifest.narrowed`."""
        if self.is_manifest:
            return read_manifest(Path(self.source)).narrowed(self.population, self.size)
        with opened_run(self.source, self.server) as run:
            return define_ensemble(run, self.population, self.size)


@dataclass(frozen=True, slots=True)
class Output:
    """Where the answers go."""

    file: Path | None
    """Standard output when None."""
    as_json: bool
    """Write one JSON document to standard output: the answers, or what was written."""
    quiet: bool
    """Show no progress."""


def predict_file(
    asked: Asked, settings: PredictionSettings, questions: Path, output: Output
) -> None:
    """Answer a file of questions.

    Args:
        asked: The ensemble.
        settings: How it answers.
        questions: File of the questions.
        output: Where the answers go.
    """
    if output.file is not None:
        check_writable(output.file)
    with interruptible("stopped; no file was written"):
        predictor = Predictor(asked.find(), settings)
        placed = predictor.encode(read_questions(predictor.task, questions))
        with _progress(quiet=output.quiet) as on_progress:
            _write(predictor.predict(placed, on_progress), output)
    count = len(placed.places)
    if output.file is not None and output.as_json:
        emit_json({"answers": count, "file": str(output.file)})
    elif output.file is not None and not output.quiet:
        stderr().print(f"{count} answers written to {output.file}", soft_wrap=True)


def _write(predictions: "Iterable[Prediction]", output: Output) -> None:
    """Write one line for each prediction, or one array of all."""
    lines = map(answer_line, predictions)
    if output.file is None and output.as_json:
        emit_json([json.loads(line) for line in lines])
        return
    with nullcontext(sys.stdout) if output.file is None else whole_file(output.file) as file:
        file.writelines(lines)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    console = stderr()
    columns = (TextColumn("answers"), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = quiet or not console.is_terminal  # errors in a pipe are one line, and nothing else
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task("", total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)
