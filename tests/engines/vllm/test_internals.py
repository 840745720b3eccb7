"""The register of vLLM internals refuses an engine with a faulty entry."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

from modnorm.engines.vllm.internals import register
from modnorm.engines.vllm.internals.logit_check import LOGITS
from modnorm.engines.vllm.internals.register import check_stage
from modnorm.engines.vllm.internals.register_entry import RegisterEntry, Stage
from modnorm.errors import IncompatibleError


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


@pytest.mark.parametrize(
    ("subject", "self_test", "reason"),
    [
        (SimpleNamespace(new=2), passes, r"no \.here"),
        (SimpleNamespace(here=1), passes, r"no \.old \| \.new"),
        (SUBJECT, fails, "self-test failed"),
        (SUBJECT, raises, "KeyError: 'moved'"),
    ],
)
def test_a_faulty_entry_refuses_the_engine_with_a_remedy(
    only: Callable[[RegisterEntry], None],
    subject: object,
    self_test: Callable[[object], bool],
    reason: str,
) -> None:
    only(replace(ENTRY, self_test=self_test, remedy="use another version"))
    with pytest.raises(IncompatibleError, match=reason) as caught:
        check_stage(Stage.CONFIG, subject)
    assert caught.value.remedy == "use another version"


def test_an_entry_counts_in_its_stage_where_it_applies(
    only: Callable[[RegisterEntry], None],
) -> None:
    only(ENTRY)
    check_stage(Stage.CONFIG, SUBJECT)
    broken = replace(ENTRY, self_test=fails)
    only(broken)
    check_stage(Stage.ENGINE, SUBJECT)
    with pytest.raises(IncompatibleError):
        check_stage(Stage.CONFIG, SUBJECT)
    only(replace(broken, applies=fails))
    check_stage(Stage.CONFIG, SUBJECT)


def test_a_model_whose_logits_cannot_be_checked_is_refused(
    only: Callable[[RegisterEntry], None],
) -> None:
    only(LOGITS)
    runner = SimpleNamespace(model=torch.nn.Linear(2, 2))
    worker = SimpleNamespace(model_runner=runner, get_model=lambda: runner.model)
    with pytest.raises(IncompatibleError, match="compute_logits"):
        check_stage(Stage.WORKER, worker)
