import json
import struct

from hypothesis import given
from hypothesis import strategies as st

from modnorm.search.answers import Answer
from modnorm.services.aggregator.storage.tables import pack_coefficients, unpack_coefficients
from modnorm.wire.answer_sheets import pack_answers, unpack_answers

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ANSWERS = st.builds(
    Answer,
    row=st.integers(0, 10),
    completion=TEXT,
    reward=st.floats(allow_nan=False, allow_infinity=False),
    vote=st.none() | TEXT,
    correct=st.booleans(),
    tokens=st.integers(0, 2**31 - 1),
    truncated=st.booleans(),
)


@given(st.lists(ANSWERS))
def test_answers_survive_storage_bit_for_bit(answers):
    restored = unpack_answers(pack_answers(answers))
    assert list(restored) == answers
    assert json.dumps([one.reward for one in restored]) == json.dumps([a.reward for a in answers])


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_coefficients_survive_storage_as_little_endian_float32(values):
    packed = pack_coefficients(values)
    assert packed == struct.pack(f"<{len(values)}f", *values)
    assert unpack_coefficients(packed) == tuple(values)
