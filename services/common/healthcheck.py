"""Container health: `python -m modnorm.services.common.healthcheck HOST:PORT [SERVICE]`."""

import argparse
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import SecretStr

from modnorm.wire.channel import open_channel
from modnorm.wire.connection import ConnectionSettings, Credentials


def check(
    target: str, service: str = "", *, timeout: float = 5.0, credentials: Credentials | None = None
) -> str:
    """Return the name of a service's health status, or of the call's status code.

    The call carries no token, since health checks need none.

    An empty service is the whole server.
    """
    request = health_pb2.HealthCheckRequest(service=service)
    given = ConnectionSettings() if credentials is None else credentials
    certificates = given.model_copy(update={"token": SecretStr(""), "token_file": None})
    with open_channel(target, certificates, ()) as channel:
        try:
            response = health_pb2_grpc.HealthStub(channel).Check(request, timeout=timeout)
        except grpc.RpcError as error:
            return error.code().name if isinstance(error, grpc.Call) else str(error)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))


def main() -> int:
    """Return 0 if the service is SERVING, otherwise 1."""
    parser = argparse.ArgumentParser(description="Check whether a service is SERVING.")
    parser.add_argument("target", help="HOST:PORT")
    parser.add_argument("service", nargs="?", default="", help="full name; default: the server")
    arguments = parser.parse_args()
    status = check(arguments.target, arguments.service)
    serves = status == "SERVING"
    print(f"{arguments.target}: {status}", file=sys.stdout if serves else sys.stderr)
    return 0 if serves else 1


if __name__ == "__main__":
    sys.exit(main())
