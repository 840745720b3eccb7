"""Addresses of servers: HOST:PORT, or `unix:PATH`."""

import ipaddress
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

_MOST = 2**16 - 1
"""Largest port. gRPC would take larger numbers modulo 65,536."""


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT, the host without the brackets of IPv6.

    Raises:
        ValueError: it is no such address.
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > _MOST:
        raise ValueError(f"{address!r} is not HOST:PORT with a port of 0 to {_MOST}")
    return host.strip("[]"), int(port)


def is_socket(address: str) -> bool:
    """Return whether an address is a Unix socket."""
    return address.startswith("unix:")


def is_loopback(address: str) -> bool:
    """Return whether an address is reachable from this machine only."""
    if is_socket(address):
        return True
    host = address.rpartition(":")[0].removeprefix("dns:").strip("/[]")
    if host.casefold() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_target(address: str) -> bool:
    """Return whether gRPC may call an address; it would try others in vain until the deadline."""
    port = address.rpartition(":")[2]
    is_web = address.startswith(("http://", "https://"))
    return bool(address) and not is_web and (not port.isdecimal() or 0 < int(port) <= _MOST)


def _check_address(address: str) -> str:
    return address if is_socket(address) else _check_web_address(address)


def _check_web_address(address: str) -> str:
    if address:
        try:
            split_address(address)
        except ValueError as error:
            raise PydanticCustomError("address", "{reason}", {"reason": str(error)}) from error
    return address


def _check_target(address: str) -> str:
    if address and not is_target(address):
        raise PydanticCustomError("address", "is no HOST:PORT of a service")
    return address


Address = Annotated[str, AfterValidator(_check_address)]
"""Type of a setting: an address of gRPC to listen on."""
WebAddress = Annotated[str, AfterValidator(_check_web_address)]
"""Type of a setting: an address of HTTP to listen on; an empty one listens nowhere."""
Target = Annotated[str, AfterValidator(_check_target)]
"""Type of a setting: an address to call; an empty one calls nobody."""
