import struct
from pathlib import Path

import pytest
import wandb
from wandb.proto import wandb_internal_pb2 as messages

from modnorm.v1 import experiment_pb2 as experiments
from tests.cli.conftest import modnorm

__all__ = ["modnorm"]

_BLOCK = 32_768
_FILE_HEADER = 7
_FULL, _LAST = 1, 4


@pytest.fixture
def event():
    """Make an event of the selection."""

    def make(cursor, done, best, state=experiments.EXPERIMENT_STATE_SELECTING):
        progress = experiments.Progress(jobs_done=done, jobs_total=4, best_reward=best)
        made = experiments.WatchExperimentResponse(cursor=cursor, state=state, progress=progress)
        made.time.FromSeconds(1_000 + cursor)
        return made

    return make


@pytest.fixture
def fresh_wandb():
    """Let the library read its settings anew, as in a process of its own."""
    wandb.teardown()
    yield
    wandb.teardown()


@pytest.fixture
def wandb_records():
    """Read the records of the one offline run below a directory: a log in LevelDB's format."""
    return lambda folder: list(_records(next(folder.rglob("run-*.wandb"))))


def _records(path: Path):
    data, parts = path.read_bytes(), []
    at = _FILE_HEADER
    while at < len(data):
        if _BLOCK - at % _BLOCK < 7:  # the rest of a block is padding
            at += _BLOCK - at % _BLOCK
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        parts.append(data[at + 7 : at + 7 + size])
        at += 7 + size
        if kind in {_FULL, _LAST}:
            yield messages.Record.FromString(b"".join(parts))  # type: ignore[attr-defined]
            parts = []
