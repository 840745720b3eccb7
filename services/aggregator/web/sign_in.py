"""Sign-in of browsers: a form takes the token, a cookie names the session."""

import hashlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from modnorm.errors import ForbiddenError, ModnormError, RateLimitedError, UnauthenticatedError
from modnorm.web.rendering import CALLER, render
from services.common.access.call_permissions import PAGE
from services.common.access.callers import Caller, set_caller
from services.common.access.rate_limits import RateLimits
from services.common.access.token_gate import TokenGate

SESSION_SECONDS = 12 * 3600.0
"""A session ends after this time, and when its token is revoked or expires."""
MOST_SESSIONS = 20
"""Sessions of one token; a further one ends the oldest."""
_MOST_BYTES = 4096
"""Size of a form."""
_LOGGED_A_SECOND = 10.0
_PURPOSE = "the web page"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Session:
    token: str
    name: str
    """Name of the token."""
    expires: float


class Sessions:
    """Sessions of browsers, in memory only; used in one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def begin(self, token: str, name: str) -> str:
        """Return the secret id of a new session."""
        now = self._clock()
        live = {key: one for key, one in self._sessions.items() if one.expires > now}
        mine = [key for key, one in live.items() if one.name == name]
        for key in mine[: max(0, len(mine) + 1 - MOST_SESSIONS)]:
            del live[key]
        secret = secrets.token_urlsafe(32)
        live[_key(secret)] = _Session(token, name, now + SESSION_SECONDS)
        self._sessions = OrderedDict(live)
        return secret

    def token(self, secret: str) -> str | None:
        """Return the token of a session; None if it has ended."""
        session = self._sessions.get(_key(secret))
        return session.token if session and session.expires > self._clock() else None

    def end(self, secret: str) -> None:
        """End a session."""
        self._sessions.pop(_key(secret), None)


class SignIn:
    """Middleware: admits requests by the session of a token, as the gRPC API does by the token.

    Where no token is needed, every request is admitted. Otherwise a request without a valid
    session is sent to the form. The style sheet needs no session.
    """

    def __init__(self, app: ASGIApp, gate: TokenGate) -> None:
        self._app = app
        self._gate = gate
        self._sessions = Sessions()
        self._logged = RateLimits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["path"].startswith("/static/"):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        if self._gate.open:
            set_caller(self._gate.admit("", _PURPOSE, PAGE))
            await self._app(scope, receive, send)
            return
        response = await self._handled(request)
        if response is None:
            await self._app(scope, receive, send)
        else:
            await response(scope, receive, send)

    async def _handled(self, request: Request) -> Response | None:
        """Return a response; None if the request is admitted to the pages."""
        match request.method, request.url.path:
            case "GET", "/sign-in":
                return _form(request)
            case "POST", "/sign-in":
                return await self._sign_in(request)
            case "POST", "/sign-out":
                return self._sign_out(request)
        return self._admitted(request)

    def _admitted(self, request: Request) -> Response | None:
        token = self._sessions.token(request.cookies.get(_cookie(request), ""))
        if token is None:
            return RedirectResponse("/sign-in", 303)
        try:
            self._set_caller(request, self._gate.admit(token, _PURPOSE, PAGE))
        except ModnormError as error:
            return self._refused(request, error)
        return None

    async def _sign_in(self, request: Request) -> Response:
        try:
            _require_own_form(request)
            token = await _token_of_form(request)
            caller = self._gate.admit(token, _PURPOSE, PAGE)
        except ModnormError as error:
            return self._refused(request, error)
        response = RedirectResponse("/", 303)
        response.set_cookie(
            _cookie(request),
            self._sessions.begin(token, caller.name),
            secure=_is_secure(request),
            httponly=True,
            samesite="strict",
        )
        return response

    def _sign_out(self, request: Request) -> Response:
        try:
            _require_own_form(request)
        except ForbiddenError as error:
            return self._refused(request, error)
        name = _cookie(request)
        self._sessions.end(request.cookies.get(name, ""))
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(name, secure=_is_secure(request), httponly=True, samesite="strict")
        return response

    def _set_caller(self, request: Request, caller: Caller) -> None:
        set_caller(caller)
        request.scope[CALLER] = caller.name

    def _refused(self, request: Request, error: ModnormError) -> Response:
        self._log(request, error)
        if isinstance(error, RateLimitedError):
            page = render(request.scope, "error.html", error=error)
            return HTMLResponse(page, 429, {"Retry-After": str(max(1, round(error.wait)))})
        return _form(request, error)

    def _log(self, request: Request, error: ModnormError) -> None:
        try:
            self._logged.take("", _LOGGED_A_SECOND)
        except RateLimitedError:
            return
        peer = request.client.host if request.client else ""
        logger.warning("refused: %s", error.message, extra={"peer": peer})


def _form(request: Request, error: ModnormError | None = None) -> Response:
    """Return the form; with an error, why the token or the session was refused."""
    status = 200 if error is None else 403 if isinstance(error, ForbiddenError) else 401
    return HTMLResponse(render(request.scope, "sign_in.html", error=error), status)


async def _token_of_form(request: Request) -> str:
    """Return the token that a form was sent with.

    Raises:
        UnauthenticatedError: it holds no token, or is too large.
    """
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise UnauthenticatedError("the form is too large")
    values = parse_qs(body.decode("ascii", "replace")).get("token", [])
    if len(values) != 1:
        raise UnauthenticatedError("a token is needed", remedy="paste one of this lab")
    return values[0].strip()


def _require_own_form(request: Request) -> None:
    """Check that a form was sent by this page, not by a foreign site.

    Raises:
        ForbiddenError: the Origin header names another host.
    """
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise ForbiddenError("the form was sent from another site", remedy="open this page")


def _cookie(request: Request) -> str:
    return "__Host-modnorm" if _is_secure(request) else "modnorm"


def _is_secure(request: Request) -> bool:
    return request.url.scheme == "https"


def _key(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
