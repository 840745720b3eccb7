"""Stands in for `python -m MODULE`: a fork server runs the module on this process's descriptors.

Run by path, as `python forked_command.py ADDRESS MODULE ARGUMENTS`, and imports little.
"""

import json
import os
import signal
import socket
import sys


def main() -> None:
    """Ask for the process, forward a request to stop it, and end with its exit code."""
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
            started, code = answers.readline(), ""
            if started:
                pid = json.loads(started)["pid"]
                signal.signal(signal.SIGTERM, lambda number, _: os.kill(pid, number))
                code = answers.readline()
    if not code or int(code) < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(int(code))


if __name__ == "__main__":
    main()
