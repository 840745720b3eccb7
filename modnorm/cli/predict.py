"""`modnorm predict`: an ensemble's answers to new questions."""

from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.options import BaseModel, BaseRevision, Json, Population, Quiet, RunServer, Size

Source = Annotated[
    str, typer.Argument(metavar="RUN", help="Directory of a run; id in a lab; a manifest.")
]
EngineName = Annotated[
    str, typer.Option("--engine", metavar="NAME", help="auto, transformers or vllm.")
]
Input = Annotated[
    Path,
    typer.Option(
        "--input",
        metavar="FILE",
        help="Questions: the task's columns as JSONL, JSON, Parquet or CSV; - or a pipe for "
        "JSONL.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Answers as JSONL [default: standard output]."),
]
AskAll = Annotated[
    bool, typer.Option("--ask-all", help="Also ask experts that cannot change a vote.")
]
Local = Annotated[
    bool, typer.Option("--local", help="Answer on this machine, although RUN is in a lab.")
]


def predict(
    run: Source,
    *,
    questions: Input,
    population: Population = None,
    size: Size = None,
    out: Out = None,
    ask_all: AskAll = False,
    local: Local = False,
    engine: EngineName = "auto",
    server: RunServer = None,
    model: BaseModel = None,
    revision: BaseRevision = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Answer new questions by the vote of an ensemble.

    For an experiment of a lab the lab's evaluators answer, otherwise this machine. --engine,
    --model and --revision need --local for such an experiment.

    It writes one line of JSON for each question, or one array with --json. Rows need no right
    answers. The file appears whole or not at all.
    """
    from modnorm.cli.predict_work import EnsembleChoice, Output, predict_file
    from modnorm.prediction.base_model import BasePlace
    from modnorm.prediction.predictor import PredictionSettings

    settings = PredictionSettings(BasePlace(model, revision), engine, ask_all)
    output = Output(out, as_json, quiet)
    predict_file(EnsembleChoice(run, server, population, size, local), settings, questions, output)
