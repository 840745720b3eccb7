"""`modnorm predict` and `rescore`: new answers of an ensemble, new judgements of a run."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from modnorm.cli.console import (
    amount,
    echo,
    echo_table,
    emit_json,
    interruptible,
    output,
    percent,
    say,
    tell,
)
from modnorm.cli.options import (
    BaseModel,
    BaseRevision,
    EngineName,
    EnsembleSource,
    Population,
    Run,
    RunServer,
    Size,
    check_output_file,
    connect,
    lab_of,
    open_run,
    opt,
    settings,
)
from modnorm.errors import InvalidInputError
from modnorm.files import encode_json, replaced_file, write_file

if TYPE_CHECKING:
    from modnorm.checkpoint.reference import Checkpoint
    from modnorm.client.rescoring import RescoredDocument
    from modnorm.prediction.ensemble_definition import EnsembleDefinition
    from modnorm.prediction.predictor import BasePlace
    from modnorm.prediction.ranked_votes import Prediction


def is_manifest(source: str, server: str | None) -> bool:
    """Return whether an argument names the file of a manifest."""
    return server is None and Path(source).is_file()


def open_ensemble(
    source: str, server: str | None, population: int | None, size: int | None, place: "BasePlace"
) -> "tuple[EnsembleDefinition, Checkpoint]":
    """Return the ensemble of a run, an experiment or a manifest, with its base on this machine."""
    from modnorm.analysis.run_files import DESCRIPTORS
    from modnorm.prediction.ensemble_definition import define_ensemble
    from modnorm.prediction.manifest import read_ensemble_manifest

    if not is_manifest(source, server):
        run = open_run(source, server, tables=[DESCRIPTORS])
        ensemble = define_ensemble(run, population, size)
        return ensemble, place.find(ensemble.model, ensemble.model_digest)
    manifest = read_ensemble_manifest(Path(source))
    ensemble = manifest.narrowed(population, size)
    base = place.find(ensemble.model, ensemble.model_digest)
    manifest.prompt.check(ensemble, base)
    return ensemble, base


def predict(
    run: EnsembleSource,
    *,
    questions: Annotated[
        Path,
        opt(
            "--input FILE",
            "Questions: the task's columns as JSONL, JSON, Parquet or CSV; - or a pipe for JSONL.",
        ),
    ],
    population: Population = None,
    size: Size = None,
    out: Annotated[
        Path | None, opt("--out FILE", "Answers as JSONL [default: standard output].")
    ] = None,
    ask_all: Annotated[
        bool, opt("--ask-all", "Also ask experts that cannot change a vote, as a lab does.")
    ] = False,
    local: Annotated[
        bool, opt("--local", "Answer on this machine, although RUN is in a lab.")
    ] = False,
    engine: EngineName = "auto",
    server: RunServer = None,
    model: BaseModel = None,
    revision: BaseRevision = None,
) -> None:
    """Answer new questions by the vote of an ensemble.

    For an experiment of a lab the lab's evaluators answer, otherwise this machine. --engine,
    --model and --revision need --local for such an experiment.

    It writes one line of JSON for each question, or one array with --json. Rows need no right
    answers. The file appears whole or not at all.
    """
    from modnorm.cli.progress import counted
    from modnorm.prediction.predictor import BasePlace, Predictor
    from modnorm.tasks.row_loading import read_questions, read_raw_questions

    place = BasePlace(model, revision)
    lab = None if local or is_manifest(run, server) else lab_of(run, server)
    if lab is not None and (place, engine) != (BasePlace(), "auto"):
        raise InvalidInputError(
            "the evaluators of the lab load the base in the engine of the experiment",
            field="model" if engine == "auto" else "engine",
            remedy="leave it out, or add --local to answer on this machine",
        )
    if out is not None:
        check_output_file(out, questions, Path(run))
    with (
        interruptible("stopped; no file was written" + ((lab and "; the lab answers on") or "")),
        _engine_log(engine) if lab is None else nullcontext(),
        counted("answers") as on_progress,
    ):
        if lab is None:
            ensemble, base = open_ensemble(run, server, population, size, place)
            predictor = Predictor(ensemble, base)
            encoded = predictor.encode(read_questions(predictor.task, questions))
            answers = predictor.predict(encoded, engine, ask_all=ask_all, on_progress=on_progress)
            count = _write(answers, out)
        else:
            placed = list(read_raw_questions(questions))
            rows = [raw for _, raw in placed]
            with connect(server) as client, _rows_at([place for place, _ in placed]):
                answers = client.predict(run, rows, population, size, on_progress=on_progress)
                count = _write(answers, out)
    if out is not None and not emit_json({"answers": count, "file": str(out)}):
        tell(f"{amount(count, 'answer')} written to {out}")


@contextmanager
def _rows_at(places: Sequence[str]) -> Iterator[None]:
    """Name the place in the file of a row that the lab refuses by its number."""
    try:
        yield
    except InvalidInputError as error:
        if error.field != "questions":
            raise
        message = re.sub(r"\brow (\d+)", lambda row: places[int(row[1])], error.message, count=1)
        raise InvalidInputError(message, field="input", remedy=error.remedy) from error


@contextmanager
def _engine_log(engine: str) -> Iterator[None]:
    """Send what vLLM prints to a file, which stays if the answers fail."""
    import tempfile

    from modnorm.engines import is_vllm
    from modnorm.process_output import output_to

    if not is_vllm(engine):
        yield
        return
    log = Path(tempfile.gettempdir()) / f"modnorm-predict-{os.getpid()}.log"
    with output_to(log):
        tell(f"log: {log}")
        yield
    log.unlink()


def _write(predictions: "Iterable[Prediction]", out: Path | None) -> int:
    """Write one line for each prediction, or one array of all; return their number."""
    from modnorm.prediction.ranked_votes import prediction_line
    from modnorm.process_output import own_stream

    if out is None and output.as_json:
        answers = [asdict(prediction) for prediction in predictions]
        emit_json(answers)
        return len(answers)
    count = 0
    with nullcontext(own_stream("stdout").buffer) if out is None else replaced_file(out) as file:
        for prediction in predictions:
            file.write(prediction_line(prediction))
            count += 1
    return count


def rescore(
    run: Run,
    *,
    scorer: Annotated[
        str | None, opt("--scorer NAME", "Scorer [default: the task's own].")
    ] = None,
    server: RunServer = None,
    sandbox: Annotated[
        str | None, opt("--sandbox HOST:PORT", "Sandbox service [default: one of this process].")
    ] = None,
    out: Annotated[
        Path | None, opt("--out FILE", "File [default: RUN/rescored-SCORER.json; none for a lab].")
    ] = None,
) -> None:
    """Judge the completions of a run by another scorer.

    It needs no model. Shows the held-out metrics by both scorers for the experts of the run, and
    for those that the new scorer selects, if all of them answered the held-out rows.
    """
    from modnorm.analysis.run_files import rescored_file
    from modnorm.cli.progress import counted
    from modnorm.client.rescoring import rescore_run
    from modnorm.tasks.registry import runs_programs
    from modnorm.wire.remote_sandbox import judging_task

    with interruptible("stopped; nothing was written"):
        found = open_run(run, server)
        named = found.spec.task.model_copy(update={"scorer": scorer})
        with (
            judging_task(named, sandbox, settings()) as task,
            ThreadPoolExecutor(os.cpu_count(), "judge") as judges,
        ):
            is_here = lab_of(run, server) is None
            target = out or (found.path / rescored_file(task.scorer) if is_here else None)
            if target is not None:
                check_output_file(target)
            threads = judges if runs_programs(named.name) else None  # others do not wait
            with counted("judging") as on_progress:
                document = rescore_run(found, task, judges=threads, on_progress=on_progress)
    if target is not None:
        write_file(target, encode_json(document))
    if emit_json(document):
        return
    _show_rescored(document)
    if target is not None:
        say(f"written to {target}")


def _show_rescored(document: "RescoredDocument") -> None:
    base, first = document["base"]["heldout_metric"], document["rank_1"]
    new = percent(first["metric"]["new"]), percent(first["reselected_metric"])
    rows = [
        ("base", percent(base["old"]), percent(base["new"]), ""),
        ("rank 1 by selection", percent(first["metric"]["old"]), *new),
    ]
    rows += [
        (
            f"N={each['population']} K={each['ensemble_size']}",
            percent(each["metric"]["old"]),
            percent(each["metric"]["new"]),
            percent(each["reselected"]["metric"]),
        )
        for each in document["ensembles"]
    ]
    headings = ("held-out", document["old_scorer"], document["new_scorer"], "selected anew")
    echo_table(headings, rows)
    for judged, name in ((document["selection"], "selection"), (document["heldout"], "held-out")):
        echo(f"{judged['changed']} of {judged['total']} {name} answers get another reward or vote")
    missing = {index for each in document["ensembles"] for index in each["reselected"]["missing"]}
    if missing:
        names = ", ".join(map(str, sorted(missing)))
        say(f"selected anew, but without held-out answers: {names}")
