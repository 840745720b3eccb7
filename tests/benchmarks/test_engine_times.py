"""What a switch takes is measured of candidates that are not the base."""

import pytest

from benchmarks import engine
from modnorm.perturbation.held_tensor import HeldTensor


@pytest.mark.parametrize("changes", [True, False])
def test_an_engine_that_stays_the_base_is_found(changes, monkeypatch):
    monkeypatch.setattr(engine, "SEQUENCES", (2,))
    monkeypatch.setattr(engine, "TOKENS", 2)
    if not changes:
        monkeypatch.setattr(HeldTensor, "write", lambda *_: None)
    found = engine.measure("tiny-thicket", "transformers", 1, 2)
    assert (found["changes"], found["no_drift"]) == (changes, True)
