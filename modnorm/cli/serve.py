"""`modnorm serve`: an OpenAI-compatible server of an ensemble."""

from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.interruption import ending_at_once
from modnorm.cli.options import BaseModel, BaseRevision, Json, Population, RunServer, Size
from modnorm.cli.predict import EngineName, Source

Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen at.")]
Port = Annotated[
    int,
    typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port; 0 takes a free one."),
]
Keys = Annotated[
    Path | None,
    typer.Option("--api-keys", metavar="FILE", help="Accepted keys, one a line."),
]
Limit = Annotated[
    int, typer.Option("--max-requests", metavar="COUNT", min=1, help="Requests at a time.")
]
Length = Annotated[
    int | None,
    typer.Option(
        "--max-length",
        metavar="TOKENS",
        min=2,
        help="Prompt and completion together [default: the model's own].",
    ),
]


def serve(
    run: Source,
    *,
    population: Population = None,
    size: Size = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    api_keys: Keys = None,
    max_requests: Limit = 256,
    max_length: Length = None,
    engine: EngineName = "auto",
    server: RunServer = None,
    model: BaseModel = None,
    revision: BaseRevision = None,
    as_json: Json = False,
) -> None:
    """Serve an ensemble to OpenAI clients.

    The answer is the vote of its experts. An address other than loopback needs --api-keys.
    Ctrl-C ends the server.
    """
    with ending_at_once():  # the imports take seconds
        from modnorm.cli.predict_work import EnsembleChoice
        from modnorm.cli.serve_work import Listening, serve_ensemble
        from modnorm.prediction.base_model import BasePlace
        from modnorm.prediction.predictor import PredictionSettings

        choice = EnsembleChoice(run, server, population, size)
        settings = PredictionSettings(BasePlace(model, revision), engine)
        listening = Listening(host, port, api_keys, max_requests, max_length, as_json)
        serve_ensemble(choice, settings, listening)
