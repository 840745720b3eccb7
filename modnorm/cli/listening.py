"""The socket of a command that serves."""

import os
import socket

from modnorm.errors import InvalidInputError


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0 takes a free one.

    Raises:
        InvalidInputError: the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InvalidInputError(
            f"cannot listen at {host}, port {port}: {reason}",
            field="port",
            remedy="name another port; --port 0 takes a free one",
        ) from error
