"""The web application: addresses, errors and static files."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from modnorm.errors import (
    InvalidInputError,
    ModnormError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
)
from modnorm.web.guard import FIGURE_POLICY, LOOPBACK, Guard
from modnorm.web.pages import Pages, render
from modnorm.web.sources import Catalog

_STATIC = Path(__file__).parent / "static"
_STATUS: Mapping[type[ModnormError], int] = {
    InvalidInputError: 400,
    NotFoundError: 404,
    PreconditionError: 409,
    UnavailableError: 503,
}


def build_app(
    catalog: Catalog,
    hosts: frozenset[str] | None = LOOPBACK,
    admit: Callable[[ASGIApp], ASGIApp] = lambda app: app,
) -> ASGIApp:
    """Return the application, which reads and never writes."""
    pages = Pages(catalog)

    run = "/runs/{name:str}"
    addresses = {
        "/": pages.runs,
        "/compare": pages.compare,
        run: pages.run,
        f"{run}/candidates": pages.candidates,
        f"{run}/candidates/{{candidate}}": pages.answers,
        f"{run}/candidates/{{candidate}}/{{split}}/{{row}}": pages.answer,
        f"{run}/questions": pages.questions,
        f"{run}/questions/{{row}}": pages.question,
    }
    app = Starlette(
        routes=[
            *(Route(path, _page(show), methods=["GET"]) for path, show in addresses.items()),
            # Browsers ask for it on pages that are no HTML.
            Route("/favicon.ico", lambda _: FileResponse(_STATIC / "icon.svg")),
            Route(f"{run}/figures/{{figure}}.svg", partial(_figure, pages), methods=["GET"]),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ],
        exception_handlers={ModnormError: _failed},
    )
    return Guard(admit(app), hosts)  # outermost: it guards responses to defects, too


def _page(show: Callable[[Request], str]) -> Callable[[Request], Response]:
    def respond(request: Request) -> Response:  # not async: runs in a thread
        return HTMLResponse(show(request))

    return respond


def _figure(pages: Pages, request: Request) -> Response:
    return Response(
        pages.figure(request),
        media_type="image/svg+xml",
        headers={"Content-Security-Policy": FIGURE_POLICY},
    )


def _failed(request: Request, error: Exception) -> Response:
    if not isinstance(error, ModnormError):
        raise error
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    return HTMLResponse(render(request.scope, "error.html", error=error), status)
