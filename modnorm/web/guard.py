"""Security headers of every response, and a check of the requested host name."""

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
FIGURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Policy of SVG figures, which hold their styles and no text of a model."""

_REFUSAL = PlainTextResponse("this page does not answer to that host name\n", 421)


class Guard:
    """Middleware: refuses foreign Host headers (DNS rebinding), sets the security headers."""

    def __init__(
        self, app: ASGIApp, hosts: frozenset[str] | None, refusal: Response = _REFUSAL
    ) -> None:
        self._app, self._hosts, self._refusal = app, hosts, refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        host = _host_name(Headers(scope=scope).get("host", ""))
        if self._hosts is None or host in self._hosts:
            await self._app(scope, receive, send_guarded)
        else:
            await self._refusal(scope, receive, send_guarded)


def _host_name(header: str) -> str | None:
    """Return the name in a Host header; None if it is malformed."""
    if "@" in header or "/" in header:
        return None
    try:
        return urlsplit(f"//{header}").hostname
    except ValueError:
        return None
