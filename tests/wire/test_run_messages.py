"""Messages of a lab as plain data: the held-out rows that do not test the selection."""

from modnorm.tasks import get_task
from modnorm.tasks.columns import encode_rows
from modnorm.wire.run_messages import overlap


def test_shared_rows_are_those_with_equal_prompts_where_the_task_is_installed():
    selection = encode_rows([{"question": "a", "answer": "1"}, {"question": "b", "answer": "1"}])
    heldout = encode_rows([{"question": "a", "answer": "2"}, {"question": "b", "answer": "1"}])
    assert overlap(get_task("gsm8k"), selection, heldout) == 2
    assert overlap(None, selection, heldout) == 1
