from hypothesis import given
from hypothesis import strategies as st

from modnorm.spec.reading import differences

VALUES = st.none() | st.integers(0, 2) | st.lists(st.integers(0, 2), max_size=2)
NAMES = st.sampled_from("abc")
SECTIONS = st.recursive(
    st.dictionaries(NAMES, VALUES, max_size=3),
    lambda inner: st.dictionaries(NAMES, VALUES | inner, max_size=3),
    max_leaves=6,
)


def test_fields_are_named_by_their_sections():
    there = {"task": {"limit": 5, "rows": [1, 2]}, "model": {"name": "x"}, "seed": 1}
    here = {"task": {"limit": 6, "rows": [1, 3]}, "model": {"name": "x", "digest": "d"}, "seed": 1}
    assert list(differences(there, here).items()) == [
        ("model.digest", (None, "d")),
        ("task.limit", (5, 6)),
        ("task.rows", ([1, 2], [1, 3])),
    ]


@given(SECTIONS, SECTIONS)
def test_differences_are_symmetric(there, here):
    assert differences(there, there) == {}
    turned = {name: (old, new) for name, (new, old) in differences(here, there).items()}
    assert differences(there, here) == turned
