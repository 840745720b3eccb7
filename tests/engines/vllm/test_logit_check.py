"""The logit check, compared with a check of each logit."""

import math
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modnorm.engines.vllm.internals.logit_check import LogitCheck

CPU = torch.device("cpu")


@given(
    steps=st.integers(1, 200),
    bad=st.none() | st.tuples(st.integers(0, 199), st.integers(0, 11)),
    value=st.sampled_from([math.nan, math.inf, -math.inf]),
    dtype=st.sampled_from([torch.bfloat16, torch.float16, torch.float32]),
    rows=st.integers(1, 3),
)
def test_one_bad_logit_of_any_step_is_noticed(
    steps: int, bad: tuple[int, int] | None, value: float, dtype: torch.dtype, rows: int
) -> None:
    check = LogitCheck(CPU)
    hidden = bad is not None and bad[0] < steps
    for step in range(steps):
        logits = torch.full((rows, 4), 3e4, dtype=dtype)
        if bad is not None and step == bad[0]:
            logits.view(-1)[bad[1] % logits.numel()] = value
        check.add(logits)
    assert check.has_finite_logits() is not hidden


def test_infinities_of_both_signs_do_not_cancel() -> None:
    check = LogitCheck(CPU)
    check.add(torch.tensor([[math.inf, -math.inf]]))
    assert not check.has_finite_logits()


def test_a_check_reports_at_the_next_call_until_cleared() -> None:
    check = LogitCheck(CPU)
    check.add(torch.tensor([[math.nan]]))
    assert [check.had_finite_logits(), check.had_finite_logits()] == [True, False]
    check.forget()
    assert check.has_finite_logits()
    assert [check.had_finite_logits(), check.had_finite_logits()] == [True, True]


@pytest.mark.parametrize("name", ["compute_logits", "compute_logits_local"])
def test_a_models_logits_are_checked_and_returned(name: str) -> None:
    said = [torch.zeros(2, 3), torch.zeros(0, 3), None, torch.tensor([[math.nan]])]
    made = list(said)
    model = SimpleNamespace(**{name: lambda _: made.pop(0)})
    check = LogitCheck(CPU)
    check.wrap(cast("torch.nn.Module", model))
    seen = []
    for one in said:
        assert getattr(model, name)(0) is one
        seen.append(check.has_finite_logits())
    assert seen == [True, True, True, False]
