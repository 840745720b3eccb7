from hypothesis import given
from hypothesis import strategies as st

from modnorm.spec import DataSpec
from modnorm.tasks import get_task
from modnorm.tasks.task_errors import shared_prompts, shared_range

TASK = get_task("gsm8k")
ROWS = st.lists(
    st.builds(
        lambda question, answer: {"question": question, "answer": answer},
        st.sampled_from("abcdef"),
        st.sampled_from("12"),
    ),
    max_size=8,
)
RANGES = st.builds(
    DataSpec,
    source=st.sampled_from(["org/set", "other/set"]),
    offset=st.integers(0, 9),
    limit=st.none() | st.integers(1, 9),
)
END = 40
"""More places than any range of these has."""


@given(ROWS, ROWS)
def test_shared_prompts_are_those_of_a_literal_search(rows, others):
    asked = [other["question"] for other in others]
    assert shared_prompts(TASK, rows, others) == [
        (index, asked.index(row["question"]))
        for index, row in enumerate(rows)
        if row["question"] in asked
    ]


def places(rows):
    stop = END if rows.limit is None else rows.offset + rows.limit
    return {(rows.source, place) for place in range(rows.offset, stop)}


@given(RANGES, RANGES)
def test_a_shared_range_is_what_both_name(rows, others):
    both = sorted(place for _, place in places(rows) & places(others))
    found = shared_range(rows, others)
    assert found == shared_range(others, rows)
    if not both:
        assert found is None
        return
    endless = rows.limit is None and others.limit is None
    assert found == (both[0], None if endless else both[-1] + 1)
