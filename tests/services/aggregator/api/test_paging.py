import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.errors import InvalidInputError
from modnorm.services.aggregator.api.paging import MAX_PAGE, decode_token, encode_token, page_size
from tests.faults import error_at


@given(st.integers(-(2**31) + 1, 2**31 - 1), st.text(max_size=20))
def test_a_token_leads_back_to_its_position(number, text):
    token = encode_token("list/1", (number, text))
    assert decode_token(token, "list/1", (0, "")) == [number, text]


def test_no_token_is_the_start():
    assert decode_token("", "list", (-1,)) == (-1,)


@pytest.mark.parametrize(
    "token",
    [
        encode_token("other", (1,)),
        encode_token("list", ("1",)),
        encode_token("list", (True,)),
        encode_token("list", (1, 2)),
        encode_token("list", (2**40,)),
        encode_token("list", (10**400,)),
        base64.urlsafe_b64encode(b'{"a": 1}').decode(),
        base64.urlsafe_b64encode(b"[" * 5000).decode(),
        "not base64",
        "\u00e9",
    ],
)
def test_tokens_of_other_lists_and_junk_are_refused(token):
    with error_at("page_token"):
        decode_token(token, "list", (0,))


@pytest.mark.parametrize("position", [(float("nan"), "a"), (1.0, "\ud800")])
def test_positions_that_no_database_stores_are_refused(position):
    with pytest.raises(InvalidInputError):
        decode_token(encode_token("list", position), "list", (0.0, ""))


def test_page_sizes_have_bounds():
    assert page_size(0, 50) == 50
    assert page_size(MAX_PAGE, 50) == MAX_PAGE
    for size in (-1, MAX_PAGE + 1):
        with pytest.raises(InvalidInputError):
            page_size(size, 50)
