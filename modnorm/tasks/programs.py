"""Python programs in completions: finding them, and one text for equal ones.

Two programs are equal when their syntax trees are, docstrings apart: spacing, comments, quotes,
line breaks and redundant parentheses carry no meaning. Names are kept; renaming them could change
what a program does.
"""

import ast
import re
import threading
import warnings
from functools import lru_cache

from modnorm.tasks.tags import last_answer, last_block, stated_answer

MAX_PROGRAM = 65_536
"""Longest program looked at, in characters."""

_PYTHON_FENCE = re.compile(r"```(?:python3?|py)\b", re.IGNORECASE)
_FENCED = re.compile(r"\s*```[A-Za-z0-9_+-]{0,20}[ \t]*\n?(.*?)(?:```\s*)?", re.DOTALL)
_FILTERS = threading.Lock()
_Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def written_program(completion: str) -> str | None:
    """Return the program of a completion, None when it holds none.

    The last answer block counts, without a fence around its content; without an answer block the
    last fence marked as Python, then the last fence. So it is in an answer block that is no Python
    as a whole, such as one with words before the fence.
    """
    answer = stated_answer(completion)
    if answer is None:
        return _fenced_program(completion)
    fenced = _FENCED.fullmatch(answer)
    whole = _present(answer if fenced is None else fenced[1])
    if whole is not None and "```" in whole and canonical_program(whole) is None:
        return _fenced_program(answer)
    return whole


def _fenced_program(text: str) -> str | None:
    return published_program(_PYTHON_FENCE.sub("```python", text))


def published_program(completion: str) -> str | None:
    """Return the program that the published code finds: as above, but fences stay in answers."""
    answer = last_answer(completion)
    if answer is not None:
        return _present(answer)
    for opening in ("```python", "```"):
        block = last_block(completion, opening, "```")
        if block is not None:
            return _present(block)
    return None


@lru_cache(maxsize=64)
def canonical_program(program: str) -> str | None:
    """Return a text that equal programs share, None for no Python and for comments alone."""
    try:
        tree = _parse(program)
        for node in ast.walk(tree):
            if isinstance(node, _Scope):
                _drop_docstring(node)
        return _unparse(tree, program) or None
    except (SyntaxError, ValueError):
        return None
    except (RecursionError, MemoryError):  # valid or not, too deeply nested to tell
        return program


def _unparse(tree: ast.Module, program: str) -> str:
    try:
        return ast.unparse(tree)
    except ValueError:  # valid, but written so that Python cannot: a number of 5,000 digits in hex
        return program


def _parse(program: str) -> ast.Module:
    # Filters of warnings (about escapes in the model's strings) belong to the whole process.
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(program)


def _drop_docstring(node: _Scope) -> None:
    if ast.get_docstring(node, clean=False) is not None:
        node.body = node.body[1:] or [ast.Pass()]


def _present(program: str) -> str | None:
    stripped = program.strip()
    return stripped if stripped and len(stripped) <= MAX_PROGRAM else None
