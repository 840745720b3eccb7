"""What a switch takes is measured of candidates that are not the base."""

import argparse

import pytest

from benchmarks import engine, gpu_kernels
from modnorm.perturbation.held_tensor import HeldTensor


@pytest.fixture
def unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldTensor, "write", lambda *_: None)


def _kernels() -> dict[str, object]:
    options = argparse.Namespace(shape="tiny", device="cpu", repeats=1, candidates=2, profile=0)
    found = gpu_kernels.measure(options)
    return {name: found[name] for name in ("equal", "no_drift")}


def _switch(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr(engine, "SEQUENCES", (2,))
    monkeypatch.setattr(engine, "TOKENS", 2)
    found = engine.measure("tiny-thicket", "transformers", 1, 2)
    return {name: found[name] for name in ("changes", "no_drift")}


def test_kernels_write_candidates() -> None:
    assert _kernels() == {"equal": True, "no_drift": True}


@pytest.mark.usefixtures("unwritten")
def test_kernels_that_write_nothing_are_found() -> None:
    assert _kernels() == {"equal": False, "no_drift": False}


def test_an_engine_becomes_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _switch(monkeypatch) == {"changes": True, "no_drift": True}


@pytest.mark.usefixtures("unwritten")
def test_an_engine_that_stays_the_base_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _switch(monkeypatch) == {"changes": False, "no_drift": True}
