"""Access to the page by a token of the lab, as the password of HTTP's Basic scheme."""

import logging
from base64 import b64decode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from modnorm.errors import ForbiddenError, ModnormError
from modnorm.services.common.access.call_permissions import PAGE
from modnorm.services.common.access.callers import set_caller
from modnorm.services.common.access.token_gate import TokenGate
from modnorm.web.rendering import CALLER

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
        """Answer a request."""
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
