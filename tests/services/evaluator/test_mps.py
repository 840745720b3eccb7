"""A stand-in for the driver's program keeps the daemon's protocol: `-d`, commands, an exit code.

Where there is a GPU and the driver's own program, that is asked as well.
"""

import os
import shutil
import stat

import pytest
import torch

from modnorm.errors import UnavailableError
from modnorm.services.evaluator.placement import (
    CONTROL,
    LOGS,
    PIPES,
    chosen_mps,
    running_mps,
    start_mps,
)
from tests.faults import error_at

DAEMON = """#!/bin/sh
pipes="${CUDA_MPS_PIPE_DIRECTORY:-DEFAULT}"
if [ "$1" = -d ]; then
    test -z "$CUDA_VISIBLE_DEVICES" && touch "$pipes/control" && exit 0
    exit 1
fi
test -e "$pipes/control" || exit 1
read command
case "$command" in
    get_server_list) echo 7;;
    quit) rm "$pipes/control";;
    *) exit 2;;
esac
"""


@pytest.fixture
def inherited(tmp_path):
    """An environment with the stand-in on its path; the default pipe directory is empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    tool = folder / CONTROL
    tool.write_text(DAEMON.replace("DEFAULT", str(tmp_path / "default")))
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "CUDA_VISIBLE_DEVICES": "3"}


def test_an_own_daemon_is_started_detected_and_ended(inherited, tmp_path):
    assert running_mps(inherited) is None
    mine = chosen_mps("auto", inherited, tmp_path)
    assert mine is not None
    assert set(mine.changes) == {PIPES, LOGS}
    client = inherited | mine.changes
    found = chosen_mps("on", client, tmp_path / "unused")
    assert found is not None
    assert found.changes == mine.changes
    found.close()
    assert running_mps(client) is not None, "who did not start it does not end it"
    mine.close()
    assert running_mps(client) is None


@pytest.mark.parametrize("script", [None, "exit 1", "exit 0"], ids=["absent", "fails", "mute"])
def test_a_daemon_that_does_not_start_is_an_error(script, inherited, tmp_path):
    tool = tmp_path / "bin" / CONTROL
    tool.unlink()
    if script is not None:
        tool.write_text(f'#!/bin/sh\ncat >/dev/null\ntest -n "$1" || exit 1\n{script}\n')
        tool.chmod(stat.S_IRWXU)
    inherited["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}/bin"
    with error_at("mps", kind=UnavailableError):
        chosen_mps("on", inherited, tmp_path)
    assert chosen_mps("auto", inherited, tmp_path) is None


def test_a_daemon_that_starts_but_does_not_answer_is_ended(inherited, tmp_path):
    tool = tmp_path / "bin" / CONTROL
    tool.write_text(tool.read_text().replace("echo 7", "exit 1"))
    with error_at("mps", kind=UnavailableError):
        start_mps(inherited, tmp_path)
    assert not (tmp_path / "mps" / "control").exists()


@pytest.mark.skipif(
    not torch.cuda.is_available() or shutil.which(CONTROL) is None,
    reason="there is no GPU here, or its driver's programs are not on the path",
)
def test_the_drivers_daemon_starts_and_ends(tmp_path_factory):
    folder = tmp_path_factory.mktemp("m")
    mine = start_mps(os.environ, folder)
    client = dict(os.environ) | mine.changes
    assert running_mps(client) is not None
    mine.close()
    assert running_mps(client) is None
