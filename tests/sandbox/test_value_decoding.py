"""Plain values survive encoding and decoding; nothing else becomes a value."""

import json
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modnorm.sandbox.decoding import MalformedValueError, Opaque, decode
from modnorm.sandbox.jail.interpreter import encode

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False),
    st.fractions(),
)
HASHABLE = SCALARS | st.tuples(SCALARS, SCALARS) | st.frozensets(SCALARS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner)
        | st.dictionaries(HASHABLE, inner)
        | st.sets(HASHABLE)
        | st.lists(inner).map(deque)
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
FORMS = st.sampled_from(
    ["int", "float", "complex", "list", "tuple", "dict", "set", "bytes", "decimal", "fraction"]
)


def _cross(value):
    return decode(json.loads(json.dumps(encode(value))))


@settings(max_examples=30)
@given(VALUES)
def test_a_plain_value_survives_encoding(value):
    crossed = _cross(value)
    assert crossed == value
    assert type(crossed) is type(value)


@settings(max_examples=30)
@given(JSON | st.builds(lambda form, rest: [form, *rest], FORMS, st.lists(JSON)))
def test_malformed_values_are_refused(encoded):
    try:
        decode(encoded)
    except MalformedValueError:
        return


def test_an_opaque_value_equals_nothing():
    opaque = _cross(object())
    assert isinstance(opaque, Opaque)
    assert opaque != opaque  # noqa: PLR0124
    assert opaque != 1


@pytest.mark.parametrize("kind", ["set", "frozenset"])
def test_colliding_hashes_are_refused(kind):
    items = [["int", format(i * (2**61 - 1), "x")] for i in range(1000)]
    with pytest.raises(MalformedValueError, match="colliding"):
        decode([kind, items])


def test_deep_nesting_is_refused():
    encoded: list[object] = ["list", []]
    for _ in range(100_000):
        encoded = ["list", [encoded]]
    with pytest.raises(MalformedValueError):
        decode(encoded)


def test_fractions_that_take_long_to_reduce_are_refused():
    digits = "f" * 2**17
    with pytest.raises(MalformedValueError, match="too long"):
        decode(["fraction", digits, f"{digits}1"])
