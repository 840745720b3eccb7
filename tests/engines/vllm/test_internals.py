"""The register of vLLM internals: its policy, its completeness and its page."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import EngineSettings, GenerationLimits
from modnorm.engines.vllm.engine import VllmEngine
from modnorm.engines.vllm.internals import register
from modnorm.engines.vllm.internals.logit_check import LOGITS
from modnorm.engines.vllm.internals.register import OPTIMISATIONS, check_stage
from modnorm.engines.vllm.internals.register_entry import Kind, RegisterEntry, Stage
from modnorm.engines.vllm.start import Overrides
from modnorm.errors import IncompatibleError

PROMPTS = [[5, 6, 7], [8, 9]]


def fails(_: object) -> bool:
    """Fail."""
    return False


def passes(_: object) -> bool:
    """Pass."""
    return True


def raises(_: object) -> bool:
    """Raise."""
    raise KeyError("moved")


ENTRY = RegisterEntry(
    name="entry",
    purpose="Nothing.",
    stage=Stage.CONFIG,
    vllm_names=(".here", ".old | .new"),
    removable_when="now",
    self_test=passes,
)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[[RegisterEntry], None]:
    """Let the register have one entry."""
    return lambda entry: monkeypatch.setattr(register, "REGISTER", [entry])


SUBJECT = SimpleNamespace(here=1, new=2)
FAULTS = [
    (SimpleNamespace(new=2), passes, r"no \.here"),
    (SimpleNamespace(here=1), passes, r"no \.old \| \.new"),
    (SUBJECT, fails, "self-test failed"),
    (SUBJECT, raises, "KeyError: 'moved'"),
]


@pytest.mark.parametrize(("subject", "self_test", "reason"), FAULTS)
def test_a_missing_requirement_refuses_the_engine_with_a_remedy(
    only: Callable[[RegisterEntry], None],
    subject: object,
    self_test: Callable[[object], bool],
    reason: str,
) -> None:
    only(replace(ENTRY, self_test=self_test, otherwise="use another version"))
    with pytest.raises(IncompatibleError, match=reason) as caught:
        check_stage(Stage.CONFIG, subject)
    assert caught.value.remedy == "use another version"


@pytest.mark.parametrize(("subject", "self_test", "reason"), FAULTS)
def test_a_missing_optimisation_is_off_and_logged(
    only: Callable[[RegisterEntry], None],
    caplog: pytest.LogCaptureFixture,
    subject: object,
    self_test: Callable[[object], bool],
    reason: str,
) -> None:
    only(replace(ENTRY, self_test=self_test, kind=Kind.OPTIMISATION, otherwise="slower"))
    with caplog.at_level(logging.WARNING):
        assert check_stage(Stage.CONFIG, subject) == frozenset()
    (record,) = caplog.records
    assert "without entry" in record.getMessage()
    assert "slower" in record.getMessage()


def test_an_entry_is_used_unless_it_is_switched_off_or_does_not_apply(
    only: Callable[[RegisterEntry], None], caplog: pytest.LogCaptureFixture
) -> None:
    optional = replace(ENTRY, kind=Kind.OPTIMISATION)
    only(optional)
    assert check_stage(Stage.CONFIG, SUBJECT) == {"entry"}
    assert check_stage(Stage.ENGINE, SUBJECT) == frozenset()
    assert check_stage(Stage.CONFIG, SUBJECT, without={"entry"}) == frozenset()
    assert "switched off" in caplog.text
    caplog.clear()
    for other in (replace(optional, applies=fails), ENTRY):
        only(other)
        assert check_stage(Stage.CONFIG, SUBJECT) == frozenset()
    assert not caplog.records


def test_a_requirement_cannot_be_switched_off(only: Callable[[RegisterEntry], None]) -> None:
    only(replace(ENTRY, self_test=fails))
    with pytest.raises(IncompatibleError):
        check_stage(Stage.CONFIG, SUBJECT, without={"entry"})


def test_a_model_whose_logits_cannot_be_checked_is_refused(
    only: Callable[[RegisterEntry], None],
) -> None:
    only(LOGITS)
    runner = SimpleNamespace(model=torch.nn.Linear(2, 2))
    worker = SimpleNamespace(model_runner=runner, get_model=lambda: runner.model)
    with pytest.raises(IncompatibleError, match="compute_logits"):
        check_stage(Stage.WORKER, worker)


def test_answers_are_the_same_without_any_optimisation(
    float32: Checkpoint, as_on_gpu: Callable[[], AbstractContextManager[None]], plain_vllm: bool
) -> None:
    """And the record of each score says so."""
    settings = EngineSettings(max_model_len=128, max_num_seqs=4)
    answers, recorded = [], []
    for without in (frozenset[str](), OPTIMISATIONS):
        with as_on_gpu():
            engine = VllmEngine(float32, settings, overrides=Overrides(without=without))
        try:
            finished = engine.generate(PROMPTS, GenerationLimits(40))
            answers.append(sorted((one.index, one.text) for one in finished))
            recorded.append(engine.environment["optimisations"])
        finally:
            engine.close()
    assert answers[0] == answers[1]
    used = "none" if plain_vllm else ", ".join(sorted(OPTIMISATIONS))
    assert recorded == [used, "none"]
