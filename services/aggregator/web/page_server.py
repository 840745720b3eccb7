"""The HTTP server of the page, in a thread of its own, and its access by tokens of the lab."""

import asyncio
import logging
import socket
import ssl
import threading
from base64 import b64decode

import anyio.to_thread
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from modnorm.errors import ForbiddenError, InvalidInputError, ModnormError, UnavailableError
from modnorm.services.common.access import PAGE, TokenGate, require_protection, set_caller
from modnorm.services.common.settings import AggregatorSettings
from modnorm.web.app import build_app
from modnorm.web.guard import LOOPBACK
from modnorm.web.pages import CALLER
from modnorm.web.sources import Catalog
from modnorm.wire.connection import is_loopback, read_pair, split_address

_CHALLENGE = {"WWW-Authenticate": 'Basic realm="modnorm: a token as password", charset="UTF-8"'}
_PURPOSE = "the web page"

logger = logging.getLogger(__name__)


class PageAccess:
    """Middleware: admits requests by the token that the gRPC API takes too.

    Browsers ask for it and send it as the password of any user name; a proxy may set it as a
    bearer token. Where no token is needed, every request is admitted.
    """

    def __init__(self, app: ASGIApp, gate: TokenGate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            caller = self._gate.admit(_token(request), _PURPOSE, PAGE)
        except ModnormError as error:
            await _refusal(request, error)(scope, receive, send)
            return
        set_caller(caller)
        scope[CALLER] = caller.name
        await self._app(scope, receive, send)


def _refusal(request: Request, error: ModnormError) -> Response:
    if request.headers.get("authorization"):  # a browser's first request has none
        peer = request.client.host if request.client else ""
        logger.warning("refused: %s", error.message, extra={"peer": peer})
    if isinstance(error, ForbiddenError):
        return PlainTextResponse(f"{error}\n", 403, _CHALLENGE)
    return PlainTextResponse("a token of this lab is needed, as password\n", 401, _CHALLENGE)


def _token(request: Request) -> str:
    """Return the token of a request; empty if it has none."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    try:
        text = b64decode(value, validate=True).decode() if scheme.lower() == "basic" else ""
    except ValueError:  # of base64 or UTF-8
        return ""
    return text.partition(":")[2].strip()


_THREADS = 4
"""Requests that are rendered concurrently: each takes a connection to the database."""
_CONNECTIONS = 200
_STOP_SECONDS = 3


class PageServer:
    """Serves the page of the lab's experiments."""

    def __init__(self, settings: AggregatorSettings, catalog: Catalog) -> None:
        self._settings = settings
        self._host, self.port = split_address(settings.page_address)
        """Once started, the port that it listens on."""
        require_protection(settings.page_address, settings)
        gate = TokenGate(settings)
        hosts = LOOPBACK | set(settings.page_hosts) if gate.open else None
        app = build_app(catalog, hosts, lambda app: PageAccess(app, gate))
        self._server = uvicorn.Server(_config(app, settings))
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Bind the address and serve until `stop`."""
        address = self._settings.page_address
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            listener = socket.create_server((self._host, self.port), family=family)
        except OSError as error:
            raise UnavailableError(
                f"cannot listen on {address}: {error}",
                field="MODNORM_PAGE_ADDRESS",
                remedy="set a free HOST:PORT, or leave it empty",
            ) from error
        self.port = listener.getsockname()[1]
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(listener)), name="page", daemon=True
        )
        self._thread.start()
        if not is_loopback(address) and self._settings.tls_cert is None:
            logger.warning("no TLS: tokens are not encrypted", extra={"address": address})
        logger.info("serving the page", extra={"port": self.port})

    def stop(self) -> None:
        """Finish present requests for a few seconds, then close."""
        if self._thread is not None:
            self._server.should_exit = True
            self._thread.join()
            self._thread = None

    async def _serve(self, listener: socket.socket) -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        await self._server.serve(sockets=[listener])


def _config(app: ASGIApp, settings: AggregatorSettings) -> uvicorn.Config:
    """Return the configuration of the server, with the certificate of the gRPC API."""
    read_pair(settings.tls_cert, settings.tls_key)
    mutual = settings.tls_client_certificates  # with all their files, as the gRPC server checks
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_STOP_SECONDS,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        ssl_ca_certs=str(settings.tls_ca) if mutual and settings.tls_ca else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if mutual else ssl.CERT_NONE,
    )
    try:
        config.load()  # a wrong file ends the start, not the thread
    except (OSError, ssl.SSLError) as error:
        raise InvalidInputError(
            f"the page cannot use the files of TLS: {error}",
            field="MODNORM_TLS_CERT",
            remedy="name a certificate in PEM with its key",
        ) from error
    return config
