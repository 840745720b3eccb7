"""Concurrent computations of two processes."""

import asyncio
from contextlib import suppress

from filelock import FileLock

from services.calibrator.computations import Computations, Turns
from services.common.artifact_store import ArtifactStore
from verification.labs.waiting import HANG_SECONDS


class Quick:
    """Work that finishes immediately."""

    name, is_resumable, total = "quick", False, 1

    def __init__(self, key):
        self.key = key

    def compute(self, report):
        return f'"{self.key}"'


async def made(runs, key):
    return [found async for found in runs.follow(Quick(key))][-1]


async def test_an_artifact_in_another_process_delays_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr("services.calibrator.computations.TURN_SECONDS", 0.0)
    (tmp_path / "locks").mkdir()
    runs = Computations(ArtifactStore(tmp_path), Turns())
    theirs = FileLock(tmp_path / "locks" / "a", thread_local=False)
    with theirs:
        held_up = asyncio.create_task(made(runs, "a"))
        await asyncio.sleep(0.1)
        other = None
        with suppress(TimeoutError):
            other = await asyncio.wait_for(made(runs, "b"), HANG_SECONDS)
    assert (other, await held_up) == ('"b"', '"a"')
