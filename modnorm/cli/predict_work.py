"""The work of `modnorm predict`: find an ensemble, ask it and write its answers."""

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from modnorm.checkpoint.reference import Checkpoint
from modnorm.cli.console import amount, emit_json, say
from modnorm.cli.interruption import interruptible
from modnorm.cli.options import check_output_file, in_lab, lab_of
from modnorm.cli.progress import counted
from modnorm.cli.runs import opened_run
from modnorm.engines import is_vllm
from modnorm.errors import InvalidInputError
from modnorm.files import replaced_file
from modnorm.prediction.ensemble_definition import (
    EnsembleDefinition,
    define_ensemble,
    task_identity,
)
from modnorm.prediction.manifest import read_ensemble_manifest
from modnorm.prediction.predictor import PredictionSettings, Predictor
from modnorm.prediction.ranked_votes import OnProgress, Prediction
from modnorm.process_output import output_to, own_stream
from modnorm.tasks import Task
from modnorm.tasks.row_files import Raw
from modnorm.tasks.row_loading import parse_question, read_questions, read_raw_questions
from modnorm.wire.conversions import spec_from_proto
from modnorm.wire.run_messages import provenance


@dataclass(frozen=True, slots=True)
class EnsembleChoice:
    """The ensemble that the command line names."""

    source: str
    """Directory of a run, id of an experiment, or file of a manifest."""
    server: str | None
    """The lab that ran it."""
    population: int | None
    size: int | None
    local: bool = False
    """Whether this machine answers, although a lab ran it."""

    @property
    def lab(self) -> str | None:
        """The lab whose evaluators answer; None if this machine answers."""
        return None if self.local or self.is_manifest else lab_of(self.source, self.server)

    @property
    def is_manifest(self) -> bool:
        """Whether the source is a manifest."""
        return self.server is None and Path(self.source).is_file()

    def find(self) -> EnsembleDefinition:
        """Return the definition of the ensemble."""
        if self.is_manifest:
            return read_ensemble_manifest(Path(self.source)).narrowed(self.population, self.size)
        with opened_run(self.source, self.server) as run:
            return define_ensemble(run, self.population, self.size)

    def check_example(self, ensemble: EnsembleDefinition, base: Checkpoint) -> None:
        """Check that the example of a manifest has the same prompt here.

        Raises:
            ConflictError: it has another one, so experts would be asked otherwise than in the run.
        """
        if self.is_manifest:
            read_ensemble_manifest(Path(self.source)).prompt.check(ensemble, base)


@dataclass(frozen=True, slots=True)
class Output:
    """The output of the answers."""

    file: Path | None
    """Standard output when None."""
    as_json: bool
    """Write one JSON document to standard output: the answers, or their number and file."""
    quiet: bool
    """Show no progress."""


def predict_file(
    choice: EnsembleChoice, settings: PredictionSettings, questions: Path, output: Output
) -> None:
    """Answer a file of questions.

    Args:
        choice: The ensemble.
        settings: How it answers.
        questions: File of the questions.
        output: Where the answers go.
    """
    if output.file is not None:
        check_output_file(output.file, questions, Path(choice.source))
    answered = _answered_here if choice.lab is None else _answered_in_lab
    with (
        interruptible("stopped; no file was written"),
        _engine_log(settings, quiet=output.quiet) if choice.lab is None else nullcontext(),
        counted("answers", quiet=output.quiet) as on_progress,
    ):
        count = _write(answered(choice, settings, questions, on_progress), output)
    if output.file is not None and output.as_json:
        emit_json({"answers": count, "file": str(output.file)})
    elif output.file is not None and not output.quiet:
        say(f"{amount(count, 'answer')} written to {output.file}")


@contextmanager
def _engine_log(settings: PredictionSettings, *, quiet: bool) -> Iterator[None]:
    """Send what vLLM prints to a file, so that it is neither between answers nor in the progress.

    The file stays if the answers fail.
    """
    if not is_vllm(settings.engine):
        yield
        return
    log = Path(tempfile.gettempdir()) / f"modnorm-predict-{os.getpid()}.log"
    with output_to(log):
        if not quiet:
            say(f"log: {log}")
        yield
    log.unlink()


def _answered_here(
    choice: EnsembleChoice, settings: PredictionSettings, questions: Path, on_progress: OnProgress
) -> Iterator[Prediction]:
    """Yield the predictions of an engine on this machine, in the order of the questions."""
    ensemble = choice.find()
    predictor = Predictor(ensemble, settings)
    choice.check_example(ensemble, predictor.base)
    encoded = predictor.encode(read_questions(predictor.task, questions))
    yield from predictor.predict(encoded, on_progress)


def _check_remote(settings: PredictionSettings) -> None:
    """Refuse options about an engine on this machine.

    Raises:
        InvalidInputError: one is set.
    """
    local = PredictionSettings()
    if (settings.place, settings.engine) != (local.place, local.engine):
        raise InvalidInputError(
            "the evaluators of the lab load the base in the engine of the experiment",
            field="engine" if settings.engine != local.engine else "model",
            remedy="leave it out, or add --local to answer on this machine",
        )


def _answered_in_lab(
    choice: EnsembleChoice, settings: PredictionSettings, questions: Path, on_progress: OnProgress
) -> Iterator[Prediction]:
    """Yield the predictions of a lab's evaluators, in the order of the questions."""
    _check_remote(settings)
    with in_lab(choice.source, choice.lab or "") as (client, experiment):
        spec = spec_from_proto(experiment.spec)
        task = task_identity(spec, provenance(experiment)).load()
        predictions = client.predict(
            choice.source,
            _checked(task, questions),
            choice.population,
            choice.size,
            ask_all=settings.ask_all,
            on_progress=on_progress,
        )
        yield from _in_order(predictions)


def _checked(task: Task, questions: Path) -> Iterator[Raw]:
    """Yield the raw questions of a file, whose errors name the line."""
    for place, raw in read_raw_questions(questions):
        parse_question(task, raw, place)
        yield raw


def _in_order(predictions: Iterable[Prediction]) -> Iterator[Prediction]:
    """Yield predictions by row; they are held until all rows before them have come."""
    held: dict[int, Prediction] = {}
    following = 0
    for prediction in predictions:
        held[prediction.row] = prediction
        while following in held:
            yield held.pop(following)
            following += 1


def _write(predictions: Iterable[Prediction], output: Output) -> int:
    """Write one line for each prediction, or one array of all; return their number."""
    lines = map(_line, predictions)
    if output.file is None and output.as_json:
        answers = [json.loads(line) for line in lines]
        emit_json(answers)
        return len(answers)
    count = 0
    with (
        nullcontext((own_stream("stdout") or sys.stdout).buffer)
        if output.file is None
        else replaced_file(output.file) as file
    ):
        for line in lines:
            file.write(line.encode())
            count += 1
    return count


def _line(prediction: Prediction) -> str:
    """Return a prediction as one line of JSON, the row and its answer first."""
    return json.dumps(asdict(prediction), allow_nan=False) + "\n"
