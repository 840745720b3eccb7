"""Agreement with math-verify, which decides equality by computer algebra.

Excluded are texts that math-verify misreads: it takes `2(3)` for a mixed number, drops the case of
symbols and the base of `52_8`.
"""

import math_verify
import pytest

from modnorm.tasks.mathematics.canonical import canonical

ANSWERS = [
    "5",
    "-5",
    "0.5",
    r"\frac{1}{2}",
    r"\frac{2}{4}",
    r"\sqrt{2}",
    r"\frac{2}{\sqrt{2}}",
    r"3\sqrt{13}",
    r"\sqrt{117}",
    r"\frac{\pi}{6}",
    r"\pi",
    "x^2-1",
    "(x-1)(x+1)",
    "x^2+1",
    "2k+2",
    "2(k+1)",
    r"\frac{11+9a}{20}",
    r"2^{1009}",
    r"2^{1010}",
    r"2^{1008}\cdot 2",
    "6-5i",
    r"\frac{3\sqrt{3}}{4}",
    r"\frac{9}{4\sqrt{3}}",
    r"\frac{n(n+1)}{2}",
    r"\frac{n^2+n}{2}",
    r"1+2\sqrt{3}",
    r"5^{1/3}",
    r"\sqrt[3]{5}",
    r"\frac{270}{7}",
    "38",
    r"12\pi",
    r"\frac{36\pi}{3}",
]


@pytest.mark.parametrize("left", ANSWERS)
def test_equality_is_that_of_computer_algebra(left):
    ours = [canonical(left) == canonical(right) for right in ANSWERS]
    parsed = math_verify.parse(f"\\boxed{{{left}}}", parsing_timeout=None)
    theirs = [
        math_verify.verify(
            parsed,
            math_verify.parse(f"\\boxed{{{right}}}", parsing_timeout=None),
            timeout_seconds=None,
        )
        for right in ANSWERS
    ]
    assert ours == theirs
