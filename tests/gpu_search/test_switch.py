"""What a switch takes is measured of candidates that are not the base."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from benchmarks import gpu_kernels
from benchmarks.gpu_search import switch
from benchmarks.gpu_search.random_model import make_model
from modnorm.engines import load_engine
from modnorm.perturbation.held_tensor import HeldTensor

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class _Heard:
    """A connection that keeps what is sent."""

    def send(self, found: dict[str, object]) -> None:
        self.found = found


@pytest.fixture
def unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldTensor, "write", lambda *_: None)


def _kernels() -> dict[str, object]:
    options = argparse.Namespace(shape="tiny", device="cpu", repeats=1, candidates=2, profile=0)
    found = gpu_kernels.measure(options)
    return {name: found[name] for name in ("equal", "no_drift")}


def test_kernels_write_candidates() -> None:
    assert _kernels() == {"equal": True, "no_drift": True}


@pytest.mark.usefixtures("unwritten")
def test_kernels_that_write_nothing_are_found() -> None:
    assert _kernels() == {"equal": False, "no_drift": False}


def _switch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    make_model(folder, "tiny", seed=1, device="cpu")
    monkeypatch.setattr(switch, "load_engine", lambda _, model: load_engine("transformers", model))
    heard = _Heard()
    switch.serve(cast("Connection", heard), switch.SwitchSettings(str(folder), 1, 2))
    return {name: heard.found[name] for name in ("changes", "no_drift")}


def test_an_engine_becomes_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _switch(tmp_path, monkeypatch) == {"changes": True, "no_drift": True}


@pytest.mark.usefixtures("unwritten")
def test_an_engine_that_stays_the_base_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _switch(tmp_path, monkeypatch) == {"changes": False, "no_drift": True}
