"""Stands in for `python -m MODULE`: a fork server runs the module on this process's descriptors.

Run by path, as `python forked_command.py ADDRESS MODULE ARGUMENTS`, and imports little.
"""

import json
import os
import signal
import socket
import sys


def main() -> None:
    """Ask for the process, wait for its end and end with its exit code."""
    address, module, *arguments = sys.argv[1:]
    launch = {
        "module": module,
        "environment": dict(os.environ),  # noqa: TID251 - the process's
        "log": "",
        "arguments": arguments,
        "folder": os.getcwd(),  # noqa: PTH109 - pathlib takes long to import
    }
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(launch).encode() + b"\n"], [0, 1, 2])
        with connection.makefile() as answers:
            _, code = answers.readline(), answers.readline()
    if not code:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(int(code))


if __name__ == "__main__":
    main()
