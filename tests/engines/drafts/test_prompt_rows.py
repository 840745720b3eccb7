"""Rows of prompts."""

import pytest

from modnorm.engines.drafts import matching


def test_a_prompt_keeps_its_row_until_others_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "PROMPTS", 2)
    rows = matching.PromptRows()
    assert [rows.row_of(prompt) for prompt in ([1], [2], [1])] == [0, 1, 0]
    assert not rows.take_reused()
    assert rows.row_of([3]) == 1
    assert rows.row_of([1]) == 0
    assert rows.take_reused() == [1]
    assert not rows.take_reused()
