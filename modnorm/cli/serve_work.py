"""The work of `modnorm serve`: load an ensemble, bind a socket and serve."""

import asyncio
import socket
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer
import uvicorn

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.cli.console import emit_json, say, stdout
from modnorm.cli.interruption import EXIT_CODE
from modnorm.cli.listening import listen
from modnorm.cli.predict_work import EnsembleChoice
from modnorm.engines import EngineSettings, load_engine
from modnorm.errors import EngineError, InvalidInputError
from modnorm.prediction.predictor import PredictionSettings
from modnorm.serving.api_errors import ApiError, ApiKeys, RequestLimit, ServerMetrics, read_keys
from modnorm.serving.app import Server, build_app
from modnorm.serving.served_ensemble import ServedEnsemble
from modnorm.serving.switching_answers import SwitchingAnswers
from modnorm.web.guard import LOOPBACK, Guard

_SHUTDOWN_SECONDS = 30
"""Longest time that open requests get at the end."""
_LOOK_SECONDS = 1.0
"""Pause between two looks whether the engine works."""


@dataclass(frozen=True, slots=True)
class Listening:
    """The address of a server, and its limits."""

    host: str
    port: int
    api_keys: Path | None
    max_requests: int
    max_length: int | None
    as_json: bool
    """Whether the address is printed as JSON."""

    def keys(self) -> ApiKeys:
        """Return the accepted keys.

        Raises:
            InvalidInputError: the file has none, or others could reach a server without keys.
        """
        if self.api_keys is not None:
            return read_keys(self.api_keys)
        if self.host not in LOOPBACK:
            raise InvalidInputError(
                f"whoever reaches {self.host} could use the model",
                field="api-keys",
                remedy="name a file of keys, or listen at 127.0.0.1",
            )
        return ApiKeys()


def serve_ensemble(
    choice: EnsembleChoice, settings: PredictionSettings, listening: Listening
) -> None:
    """Serve until Ctrl-C or SIGTERM, whose exception ends a load.

    Args:
        choice: The ensemble.
        settings: Base and engine.
        listening: Address and limits.

    Raises:
        InvalidInputError: the ensemble, the base, the keys or the address cannot be used.
        ConflictError: the task makes other prompts here than in the run.
        EngineError: the model cannot be loaded.
    """
    keys, definition = listening.keys(), choice.find()
    base = settings.place.find(definition.model, definition.model_digest)
    choice.check_example(definition, base)
    most = listening.max_length or base.max_position
    ensemble, metrics = ServedEnsemble(definition, base, most), ServerMetrics()
    limits = EngineSettings(max_model_len=ensemble.most_tokens)
    answering = SwitchingAnswers(
        partial(load_engine, settings.engine, base, limits),
        ensemble.models,
        ensemble.task,
        metrics,
        PromptEncoder(base),  # that of the ensemble is used by another thread
    )
    limit = RequestLimit(listening.max_requests, metrics)
    server = Server(ensemble, answering, limit, metrics, keys, int(time.time()))
    with listen(listening.host, listening.port) as listener:
        try:
            asyncio.run(_serve(server, listening, listener))
        except (KeyboardInterrupt, SystemExit) as end:
            if answering.is_loading:
                raise
            raise typer.Exit(EXIT_CODE if isinstance(end, KeyboardInterrupt) else 0) from end


async def _serve(server: Server, listening: Listening, listener: socket.socket) -> None:
    try:
        await server.answering.start()
        _announce(listening, listener.getsockname()[1], server.ensemble)
        await _listen(server, listener)
    finally:
        server.answering.stop()


def _announce(listening: Listening, port: int, ensemble: ServedEnsemble) -> None:
    name = f"[{listening.host}]" if ":" in listening.host else listening.host
    url = f"http://{name}:{port}/v1"
    if listening.as_json:
        emit_json({"url": url, "models": list(ensemble.models)})
        return
    stdout().print(url, soft_wrap=True)
    say(f"models: {', '.join(ensemble.models)}; Ctrl-C ends")


async def _listen(server: Server, listener: socket.socket) -> None:
    refusal = ApiError(421, "this server does not answer to that host name").response()
    # Without keys, no page of another site may ask.
    hosts = None if server.keys.are_needed else LOOPBACK
    app = Guard(build_app(server), hosts, refusal)
    config = uvicorn.Config(
        app,
        log_level="warning",
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    serving = uvicorn.Server(config)
    watching = asyncio.create_task(_stop_without_engine(serving, server.answering))
    try:
        await serving.serve(sockets=[listener])
    finally:
        watching.cancel()
    if not server.answering.is_alive:
        raise EngineError(
            "the engine has failed, and could not be loaded again",
            remedy="read the log above for the reason",
        )


async def _stop_without_engine(serving: uvicorn.Server, answering: SwitchingAnswers) -> None:
    """Stop a server whose engine has failed for good; a restart policy starts another."""
    while answering.is_alive:  # noqa: ASYNC110 - polls an engine
        await asyncio.sleep(_LOOK_SECONDS)
    serving.should_exit = True
