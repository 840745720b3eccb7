"""Errors in the form of OpenAI's API."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.responses import JSONResponse

from modnorm.errors import InvalidInputError, ModnormError


@dataclass
class ApiError(Exception):
    """A refused request.

    Args:
        status: HTTP status.
        message: The fault, in one sentence.
        kind: OpenAI's type of the error.
        code: OpenAI's code; None without one.
        param: The field at fault.
        headers: Further headers of the response.
    """

    status: int
    message: str
    kind: str = "invalid_request_error"
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message

    def document(self) -> dict[str, object]:
        """Return the error in OpenAI's form."""
        content = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return {"error": content}

    def response(self) -> JSONResponse:
        """Return the response."""
        return JSONResponse(self.document(), self.status, dict(self.headers))


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return the error of a malformed request."""
    return ApiError(400, message, code=code, param=param)


def overloaded(limit: int) -> ApiError:
    """Return the error of one request too many."""
    return ApiError(
        429,
        f"{limit} requests are in progress, the limit of this server; try again",
        kind="rate_limit_error",
        code="rate_limit_exceeded",
        headers={"Retry-After": "1"},
    )


def unavailable(message: str) -> ApiError:
    """Return the error of a server that cannot answer now."""
    return ApiError(503, message, kind="server_error", code="unavailable")


def from_library(error: ModnormError) -> ApiError:
    """Return the error of the library as one of the API."""
    if isinstance(error, InvalidInputError):
        remedy = f" ({error.remedy})" if error.remedy else ""
        return invalid(f"{error.message}{remedy}", "row")
    return ApiError(500, error.message, kind="server_error", code="engine_error")
