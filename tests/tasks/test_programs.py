import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.tasks.mbpp import MAX_PROGRAM, canonical_program, published_program, written_program


@pytest.mark.parametrize(
    ("completion", "written", "published"),
    [
        ("<answer>\nx = 1\n</answer>", "x = 1", "x = 1"),
        ("<answer>x = 1</answer><answer>x = 2</answer>", "x = 2", "x = 2"),
        ("<answer>\n```python\nx = 1\n```\n</answer>", "x = 1", "```python\nx = 1\n```"),
        ("<answer>\n```\nx = 1\n</answer>", "x = 1", "```\nx = 1"),
        ("<answer>So:\n```python\nx = 1\n```</answer>", "x = 1", "So:\n```python\nx = 1\n```"),
        ("<answer>x = '```'</answer>", "x = '```'", "x = '```'"),
        ("<answer>```\nx = '```'\n```</answer>", "x = '```'", "```\nx = '```'\n```"),
        ("```python\nx = 1\n```", "x = 1", "x = 1"),
        ("```\nx = 1\n```", "x = 1", "x = 1"),
        ("```python\nx = 1\n```\nor\n```\nx = 2\n```", "x = 1", "x = 1"),
        ("<answer> </answer>```python\nx = 1\n```", None, None),
        ("```py\nx = 1\n```", "x = 1", "py\nx = 1"),
        ("```Python\nx = 1\n```\ngives\n```\n1\n```", "x = 1", "1"),
        ("<answer>So:\n```python3\nx = 1\n```</answer>", "x = 1", "So:\n```python3\nx = 1\n```"),
        ("in <answer> tags <answer>x = 1</answer>", "x = 1", "tags <answer>x = 1"),
        ("x = 1", None, None),
        (f"<answer>{'x' * MAX_PROGRAM}x</answer>", None, None),
    ],
)
def test_programs_are_found(completion, written, published):
    assert written_program(completion) == written
    assert published_program(completion) == published


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("x=1", "x = 1", True),
        ("x = 'a'", 'x = "a"', True),
        ("x = (1)", "x = 1  # one", True),
        ("def f():\n  '''a'''\n  return 1", "def f():\n    return 1", True),
        ("class A:\n    'a'", "class A:\n    pass", True),
        ("x = 0x10", "x = 16", True),
        ("x = 1", "y = 1", False),
        ("x = 1 + 2", "x = 3", False),
        ("x = 'a'", "x = b'a'", False),
        ("def f():\n  return 1", "def f():\n  return 2", False),
    ],
)
def test_equal_trees_are_one_text(left, right, equal):
    assert (canonical_program(left) == canonical_program(right)) is equal


@pytest.mark.parametrize(
    "program", ["(" * 10_000, "-" * 10_000 + "1", "1" + "+1" * 5_000, "x" + ".y" * 5_000]
)
def test_deep_programs_do_not_raise(program):
    assert canonical_program(program) in {None, program}


PIECES = [
    "<answer>",
    "</answer>",
    "```",
    "python\n",
    "x = 1",
    "\n",
    "def f():",
    "    return 1",
    "(",
]


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_canonical_programs_are_fixed_points(text):
    program = written_program(text)
    form = None if program is None else canonical_program(program)
    if form is not None:
        assert canonical_program(form) == form
        ast.parse(form)
