"""What a lab's engines were busy with is a part of their time, however many share a GPU."""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from benchmarks.gpu_search import lab_scaling
from modnorm.client.experiments import ExperimentState

if TYPE_CHECKING:
    from modnorm.client.client import Client


class _Lab:
    """A lab in which four jobs of five seconds each are done in ten."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def submit(self, _: object) -> SimpleNamespace:
        return SimpleNamespace(id="it")

    def watch(self, _: str) -> Iterator[SimpleNamespace]:
        states = ExperimentState.SELECTING, ExperimentState.VOTING
        for when, state in zip((0, 10), states, strict=True):
            yield SimpleNamespace(time=datetime.fromtimestamp(when, UTC), state=state)

    def get(self, _: str) -> SimpleNamespace:
        return SimpleNamespace(state=ExperimentState.SUCCEEDED)

    def pages(self, _: object) -> list[SimpleNamespace]:
        jobs = range(4)
        return [
            SimpleNamespace(
                seconds=5.0, selection_tokens=1, worker=job % self._workers, environment={}
            )
            for job in jobs
        ]


def _busy(gpus: int, engines: int) -> object:
    options = argparse.Namespace(
        model=Path("model"),
        rows=1,
        population=4,
        max_tokens=1,
        engine="vllm",
        engines=engines,
        drafts="none",
    )
    lab = cast("Client", _Lab(gpus * engines))
    return lab_scaling._measure(lab, gpus, options)["busy_share"]


def test_engines_that_share_a_gpu_are_busy_for_a_part_of_their_time() -> None:
    assert _busy(2, 1) == 1.0
    assert _busy(1, 2) == 1.0
    assert _busy(2, 2) == 0.5
