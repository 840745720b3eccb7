from hypothesis import given
from hypothesis import strategies as st

from modnorm.services.common.bounded_dict import BoundedDict


@given(st.integers(1, 4), st.lists(st.integers(0, 6)))
def test_the_items_stored_last_are_kept_in_the_order_of_their_last_storing(size, keys):
    items: BoundedDict[int, int] = BoundedDict(size)
    for place, key in enumerate(keys):
        items[key] = place
    newest = list(dict.fromkeys(reversed(keys)))[:size]
    last = {key: place for place, key in enumerate(keys)}
    assert list(items.items()) == [(key, last[key]) for key in reversed(newest)]
