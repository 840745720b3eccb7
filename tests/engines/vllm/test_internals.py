"""The register of vLLM internals: its policy, its completeness and its page."""

import ast
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
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
from modnorm.engines.vllm.internals.register import OPTIMISATIONS, REGISTER, check_stage
from modnorm.engines.vllm.internals.register_entry import Kind, RegisterEntry, Stage
from modnorm.engines.vllm.start import Overrides
from modnorm.errors import IncompatibleError

PACKAGE = Path(__file__).parents[3] / "modnorm/engines/vllm"
PUBLIC = {
    "vllm",
    "vllm.config",
    "vllm.distributed",
    "vllm.engine.arg_utils",
    "vllm.envs",
    "vllm.lora.request",
    "vllm.platforms",
    "vllm.sampling_params",
    "vllm.usage.usage_lib",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.llm_engine",
    "vllm.v1.executor",
}
"""Modules that engines outside the register may import: their names are vLLM's interface.

vLLM's manual documents `LoRARequest`, and `AsyncLLM` as `vllm.AsyncLLMEngine`.
"""
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


def test_every_import_beyond_the_interface_is_in_the_register() -> None:
    touched = {touch.partition(":")[0] for entry in REGISTER for touch in entry.vllm_names}
    touched |= {module.rpartition(".")[0] for module in touched}
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tree.body = [one for one in tree.body if not isinstance(one, ast.If)]  # type checkers'
        known = PUBLIC if path.parent == PACKAGE else PUBLIC | touched
        assert set(_imports_of_vllm(tree)) <= known, path.name


def test_names_are_unique_and_self_tests_state_their_assumption() -> None:
    assert len({entry.name for entry in REGISTER}) == len(REGISTER)
    assert all(entry.self_test.__doc__ for entry in REGISTER)


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


def _imports_of_vllm(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "vllm":
            yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.partition(".")[0] == "vllm")
