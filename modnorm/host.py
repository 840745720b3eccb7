"""The surroundings of a process: proxies of the environment."""

import os
from urllib.request import getproxies_environment

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def exempt_loopback() -> None:
    """Exempt loopback from the proxies of the environment, which are for downloads.

    This is for HTTP clients inside libraries: collectors of traces, trackers and mirrors of the
    Hub may listen there. Channels of gRPC have an option.
    """
    proxies = getproxies_environment()
    exempt = proxies.pop("no", "")
    if proxies and exempt != "*":
        names = dict.fromkeys([*filter(None, exempt.split(",")), *_LOOPBACK])
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(names)
