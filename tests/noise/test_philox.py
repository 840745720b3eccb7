import hashlib

import pytest
import torch

from modnorm.noise.portable import philox4x32, stream_key


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)  # fmt: skip
def test_known_answers_of_random123(counter, key, expected):
    c0, c1, c2, c3 = (torch.tensor([int(word, 16)]) for word in counter.split())
    k0, k1 = (int(word, 16) for word in key.split())

    words = philox4x32((c0, c1, c2, c3), (k0, k1))

    assert [f"{int(word):08x}" for word in words] == expected.split()


def test_key_is_the_start_of_the_digest_of_the_three_fields():
    digest = hashlib.sha256(b"portable-v1\n42\nmodel.norm.weight").digest()

    first, second = stream_key("portable-v1", 42, "model.norm.weight")

    assert first == int.from_bytes(digest[:4], "little")
    assert second == int.from_bytes(digest[4:8], "little")
