"""The work of `modnorm view`: bind a socket and serve the page on it."""

from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import typer
import uvicorn

from modnorm.cli.console import emit_json, say, stdout
from modnorm.cli.interruption import EXIT_CODE
from modnorm.cli.listening import listen
from modnorm.client.unfinished_runs import read_unfinished
from modnorm.errors import InvalidInputError
from modnorm.web.app import build_app
from modnorm.web.guard import LOOPBACK
from modnorm.web.run_directories import DirectoryCatalog


def serve_directories(runs: Sequence[Path], host: str, port: int, *, as_json: bool) -> None:
    """Serve the page until Ctrl-C.

    Raises:
        InvalidInputError: a path is not a run directory, the host names all interfaces, or the
            address cannot be bound.
    """
    if _is_wildcard(host):
        raise InvalidInputError(
            f"{host} stands for all addresses, so the Host header cannot be checked",
            field="host",
            remedy="name the address or host name that browsers will use",
        )
    app = build_app(DirectoryCatalog(runs, read_unfinished), LOOPBACK | {host.lower()})
    with listen(host, port) as listener:
        name = f"[{host}]" if ":" in host else host
        url = f"http://{name}:{listener.getsockname()[1]}/"
        if as_json:
            emit_json({"url": url})
        else:
            stdout().print(url, soft_wrap=True)
            say("Open the address in a browser. Ctrl-C ends the page.")
        if host not in LOOPBACK:
            say(f"everybody who reaches {name} can read these runs")
        config = uvicorn.Config(app, log_level="warning", server_header=False, lifespan="off")
        uvicorn.Server(config).run(sockets=[listener])
    raise typer.Exit(EXIT_CODE)  # uvicorn returns after Ctrl-C


def _is_wildcard(host: str) -> bool:
    try:
        return not host or ip_address(host).is_unspecified
    except ValueError:  # a name
        return False
