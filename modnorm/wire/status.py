"""Conversion between the exception tree and gRPC status codes, in one table.

Field and remedy travel as `google.rpc.BadRequest` and `google.rpc.ErrorInfo` details, so that a
client raises the same error as the service.
"""

import re
from typing import cast

import grpc
import grpc.aio
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from modnorm import errors

DOMAIN = "modnorm"

_ENDED_CALLS = (grpc.Call, grpc.aio.AioRpcError)
"""Errors of a call that ended with a status, blocking or asynchronous."""

CODES: dict[type[errors.ModnormError], grpc.StatusCode] = {
    errors.InvalidInputError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.TooLargeError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.NotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.ConflictError: grpc.StatusCode.ALREADY_EXISTS,
    errors.StaleLeaseError: grpc.StatusCode.ABORTED,
    errors.PreconditionError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
    errors.ForbiddenError: grpc.StatusCode.PERMISSION_DENIED,
    errors.UnavailableError: grpc.StatusCode.UNAVAILABLE,
    errors.CancelledError: grpc.StatusCode.CANCELLED,
    errors.ModnormError: grpc.StatusCode.INTERNAL,
}
_BY_NAME: dict[str, type[errors.ModnormError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.ModnormError)
}
_BY_CODE: dict[grpc.StatusCode, type[errors.ModnormError]] = {
    code: kind for kind, code in reversed(CODES.items())
}
_RUNNING = "is a server running at that address?"
_OTHER = "another service, or another version, is running there: correct the address or update it"
_CLOSED = (
    "if the server uses TLS, set MODNORM_TLS_CA, and MODNORM_TLS_CERT and MODNORM_TLS_KEY where "
    "callers must have a certificate"
)
"""Remedy if a server closes a connection at once, as one does that expects TLS."""
_UNTRUSTED = (
    "see that the server's certificate is signed by MODNORM_TLS_CA, has not expired and names the "
    "host of this address"
)
_REMEDIES = {
    "Socket closed": _CLOSED,
    "Connection reset by peer": _CLOSED,
    "CERTIFICATE_VERIFY_FAILED": _UNTRUSTED,
    "Hostname Verification Check failed": _UNTRUSTED,
    "WRONG_VERSION_NUMBER": "if the server uses no TLS, unset MODNORM_TLS_CA",
}
"""Remedies by words of gRPC on a connection that was not made."""
_BARE: dict[type[errors.ModnormError], tuple[str | None, str]] = {
    errors.UnavailableError: (None, _RUNNING),
    errors.TooLargeError: ("message", "send or ask for less at a time: fewer or shorter rows"),
}
"""Field and remedy of errors of gRPC itself, which carry no details."""
_NO_ADDRESS = re.compile(
    r"failed to connect to all addresses; last error: \w+: (?:ipv[46]:|unix:)?(?P<address>[^:]*"
    r"(?::\d+)?): (?:Failed to connect to remote host: )?(?:connect: )?"
    r"(?:Tls handshake failed \(\w+\): SSL_ERROR_SSL: error:\w+:SSL routines:OPENSSL_internal:"
    r"|Custom verification check failed with error: UNAUTHENTICATED: )?(?P<reason>[^(]*[^( ])"
)
_NO_HOST = re.compile(r"DNS resolution failed for (?P<target>[^:]*(?::\d+)?):")
LATE = "it may be busy, or out of reach: try again later"
"""Remedy for a call without an answer in time, whether or not a server listens."""


def code_of(error: errors.ModnormError) -> grpc.StatusCode:
    """Return the status code of an error, or of its nearest ancestor in the table."""
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def to_status(error: errors.ModnormError) -> status_pb2.Status:
    """Encode an error with its field and remedy as details."""
    info = error_details_pb2.ErrorInfo(
        reason=type(error).__name__, domain=DOMAIN, metadata={"remedy": error.remedy or ""}
    )
    status = status_pb2.Status(code=code_of(error).value[0], message=error.message)
    status.details.add().Pack(info)
    if error.field:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=error.field, description=error.message
        )
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    return status


def from_rpc_error(
    error: grpc.RpcError, *, server: str = "the server", late: str = LATE
) -> errors.ModnormError:
    """Return the error of the service from the exception of a call to `server`."""
    if not isinstance(error, _ENDED_CALLS):
        return errors.UnavailableError(str(error))
    status = rpc_status.from_call(cast("grpc.Call", error))
    if status is not None and status.code != code_pb2.OK:
        return from_status(status)
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.UnavailableError(f"{server} did not answer in time", remedy=late)
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return errors.UnreachableError(f"{server} lacks the called method", remedy=_OTHER)
    kind = _BY_CODE.get(error.code(), errors.ModnormError)
    details = error.details() or error.code().name.lower()
    if kind is errors.UnavailableError and (words := _unreachable(details)):
        remedies = (remedy for reason, remedy in _REMEDIES.items() if reason in words)
        return errors.UnreachableError(words, remedy=next(remedies, _RUNNING))
    field, remedy = _BARE.get(kind, (None, None))
    return kind(details, field=field, remedy=remedy)


def from_neighbour(error: grpc.RpcError, name: str) -> errors.ModnormError:
    """Return the error of a call that a service makes to another one for its own caller.

    The error names an unreachable service, since that caller does not know its address.
    """
    met = from_rpc_error(error, server=f"the {name}")
    if not isinstance(met, errors.UnreachableError):
        return met
    return errors.UnavailableError(
        f"the {name} cannot be reached: {met.message}",
        remedy=f"start the {name}, or correct its address in the settings of its callers",
    )


def from_status(status: status_pb2.Status) -> errors.ModnormError:
    """Return the error that `to_status` encoded."""
    kind: type[errors.ModnormError] = errors.ModnormError
    remedy: str | None = None
    field: str | None = None
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        if detail.Unpack(info):
            kind = _BY_NAME.get(info.reason, errors.ModnormError)
            remedy = info.metadata["remedy"] or None
        elif detail.Unpack(bad) and bad.field_violations:
            field = bad.field_violations[0].field
    return kind(status.message, field=field, remedy=remedy)


def _unreachable(details: str) -> str | None:
    """Return in plain words why no connection was made; None if gRPC means something else."""
    if refused := _NO_ADDRESS.match(details):
        return f"cannot connect to {refused['address']}: {refused['reason']}"
    if unknown := _NO_HOST.match(details):
        return f"the host name of {unknown['target']} cannot be resolved"
    return None
