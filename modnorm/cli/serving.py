"""`modnorm serve` and `view`: an ensemble for OpenAI clients, and a web page of runs."""

import errno
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.cli.console import INTERRUPTED, emit, ending_at_once, say
from modnorm.cli.options import (
    BaseModel,
    BaseRevision,
    EngineName,
    EnsembleSource,
    Population,
    RunServer,
    Size,
    arg,
    local_run,
    opt,
)
from modnorm.errors import InvalidInputError

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from modnorm.serving.api_errors import ApiKeys
    from modnorm.serving.app import Server
    from modnorm.serving.switching_answers import SwitchingAnswers

Host = Annotated[str, opt("--host ADDRESS", "Address to listen at.")]
Port = Annotated[int, opt("--port PORT", "Port; 0 takes a free one.", min=0, max=65535)]
_SHUTDOWN_SECONDS = 30
"""Longest time that open requests get at the end."""
_LOOK_SECONDS = 1.0
"""Pause between two looks whether the engine works."""


def serve(
    run: EnsembleSource,
    *,
    population: Population = None,
    size: Size = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    api_keys: Annotated[Path | None, opt("--api-keys FILE", "Accepted keys, one a line.")] = None,
    max_requests: Annotated[int, opt("--max-requests COUNT", "Requests at a time.", min=1)] = 256,
    max_length: Annotated[
        int | None,
        opt(
            "--max-length TOKENS",
            "Prompt and completion together [default: the model's own].",
            min=2,
        ),
    ] = None,
    engine: EngineName = "auto",
    server: RunServer = None,
    model: BaseModel = None,
    revision: BaseRevision = None,
) -> None:
    """Serve an ensemble to OpenAI clients.

    The answer is the vote of its experts. An address other than loopback needs --api-keys.
    Ctrl-C ends the server.
    """
    with ending_at_once():
        import asyncio
        import time
        from functools import partial

        from modnorm.cli.predict import open_ensemble

        keys = _keys(api_keys, host)
        say("loading libraries and model")
        from modnorm.engines import EngineSettings, load_engine
        from modnorm.prediction.predictor import BasePlace
        from modnorm.serving.api_errors import RequestLimit, ServerMetrics
        from modnorm.serving.app import Server
        from modnorm.serving.served_ensemble import ServedEnsemble
        from modnorm.serving.switching_answers import SwitchingAnswers

        place = BasePlace(model, revision)
        definition, base = open_ensemble(run, server, population, size, place)
        ensemble = ServedEnsemble(definition, base, max_length or base.max_position)
        metrics = ServerMetrics()
        limits = EngineSettings(max_model_len=ensemble.most_tokens)
        answering = SwitchingAnswers(
            partial(load_engine, engine, base, limits), ensemble.models, ensemble.task, metrics
        )
        limit = RequestLimit(max_requests, metrics)
        served = Server(ensemble, answering, limit, metrics, keys, int(time.time()))
        with listen(host, port) as listener:
            try:
                asyncio.run(_serve(served, listener, host))
            except (KeyboardInterrupt, SystemExit) as end:
                if answering.is_loading:
                    raise
                code = INTERRUPTED if isinstance(end, KeyboardInterrupt) else 0
                raise typer.Exit(code) from end


def _keys(file: Path | None, host: str) -> "ApiKeys":
    """Return the accepted keys; others must not reach a server without keys."""
    from modnorm.serving.api_errors import ApiKeys, read_keys
    from modnorm.web.guard import LOOPBACK

    if file is not None:
        return read_keys(file)
    if host not in LOOPBACK:
        raise InvalidInputError(
            f"whoever reaches {host} could use the model",
            field="api-keys",
            remedy="name a file of keys, or listen at 127.0.0.1",
        )
    return ApiKeys()


async def _serve(server: "Server", listener: socket.socket, host: str) -> None:
    try:
        await server.answering.start()
        url = f"{_url(host, listener)}/v1"
        models = list(server.ensemble.models)
        emit({"url": url, "models": models}, url)
        say(f"models: {', '.join(models)}; Ctrl-C ends")
        await answer_requests(server, listener)
    finally:
        server.answering.stop()


async def answer_requests(server: "Server", listener: socket.socket) -> None:
    """Answer requests until a signal, or until the engine has failed for good."""
    import asyncio

    import uvicorn

    from modnorm.errors import EngineError
    from modnorm.serving.api_errors import ApiError
    from modnorm.web.guard import LOOPBACK, Guard

    refusal = ApiError(421, "this server does not answer to that host name").response()
    # Without keys, no page of another site may ask.
    hosts = None if server.keys.are_needed else LOOPBACK
    serving = uvicorn.Server(_config(Guard(server.app(), hosts, refusal)))
    watching = asyncio.create_task(_stop_without_engine(serving, server.answering))
    try:
        await serving.serve(sockets=[listener])
    finally:
        watching.cancel()
    if not server.answering.is_alive:
        raise EngineError(
            "the engine has failed", remedy="read the log above, then start the server again"
        )


async def _stop_without_engine(serving: "uvicorn.Server", answering: "SwitchingAnswers") -> None:
    """Stop a server whose engine has failed for good; a restart policy starts another."""
    import asyncio

    while answering.is_alive:  # noqa: ASYNC110 - polls an engine
        await asyncio.sleep(_LOOK_SECONDS)
    serving.should_exit = True


def view(
    runs: Annotated[list[Path], arg("RUN", "Run directories, or directories that contain some.")],
    *,
    port: Port = 0,
    host: Host = "127.0.0.1",
) -> None:
    """Serve a web page of run directories.

    The page reads and never writes. It asks for no token: at an address other than loopback,
    everybody who reaches the port reads the runs. Ctrl-C ends it.
    """
    from contextlib import suppress
    from ipaddress import ip_address

    import uvicorn

    from modnorm.client.embedded import read_unfinished
    from modnorm.web.app import build_app
    from modnorm.web.guard import LOOPBACK
    from modnorm.web.run_directories import DirectoryCatalog

    is_wildcard = not host
    with suppress(ValueError):  # a name
        is_wildcard = is_wildcard or ip_address(host).is_unspecified
    if is_wildcard:
        raise InvalidInputError(
            f"{host} stands for all addresses, so the Host header cannot be checked",
            field="host",
            remedy="name the address or host name that browsers will use",
        )
    found = [local_run(str(run)) for run in runs]
    app = build_app(DirectoryCatalog(found, read_unfinished), LOOPBACK | {host.lower()})
    with listen(host, port) as listener:
        url = f"{_url(host, listener)}/"
        emit({"url": url}, url)
        say("Open the address in a browser. Ctrl-C ends the page.")
        if host not in LOOPBACK:
            say(f"everybody who reaches {host} can read these runs")
        uvicorn.Server(_config(app)).run(sockets=[listener])
    raise typer.Exit(INTERRUPTED)  # uvicorn returns after Ctrl-C


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        number = error.errno or -1  # below 0 for a name that does not resolve
        reason = os.strerror(number) if number > 0 else "the name does not resolve"
        told = f"cannot listen at {host}, port {port}: {reason}"
        if number < 0 or number in {errno.EADDRNOTAVAIL, errno.EINVAL}:
            remedy = "name an address of this machine"
            raise InvalidInputError(told, field="host", remedy=remedy) from error
        remedy = "name another port; --port 0 takes a free one"
        raise InvalidInputError(told, field="port", remedy=remedy) from error


def _url(host: str, listener: socket.socket) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


def _config(app: "ASGIApp") -> "uvicorn.Config":
    import uvicorn

    return uvicorn.Config(
        app,
        log_level="warning",
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
