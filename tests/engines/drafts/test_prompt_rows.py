"""Rows of prompts."""

from modnorm.engines.drafts.matching import PromptRows


def test_a_prompt_keeps_its_row_until_others_need_it() -> None:
    rows = PromptRows(limit=2)
    assert [rows.row_of(prompt) for prompt in ([1], [2], [1])] == [0, 1, 0]
    assert not rows.take_reused()
    assert rows.row_of([3]) == 1
    assert rows.row_of([1]) == 0
    assert rows.take_reused() == [1]
    assert not rows.take_reused()
