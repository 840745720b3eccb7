from modnorm.spec.reading import differences


def test_fields_are_named_by_their_sections():
    there = {"task": {"limit": 5, "rows": [1, 2]}, "model": {"name": "x"}, "seed": 1}
    here = {"task": {"limit": 6, "rows": [1, 3]}, "model": {"name": "x", "digest": "d"}, "seed": 1}
    assert list(differences(there, here).items()) == [
        ("model.digest", (None, "d")),
        ("task.limit", (5, 6)),
        ("task.rows", ([1, 2], [1, 3])),
    ]
