"""Python programs in completions: extraction and a canonical form.

Two programs are equal if their syntax trees without docstrings are. Spacing, comments, quotes,
line breaks and redundant parentheses have no meaning. Names are kept, because renaming could
change behaviour.
"""

import ast
import re
import threading
import warnings
from functools import lru_cache

from modnorm.tasks.tags import last_answer, last_block, stated_answer

MAX_PROGRAM = 65_536
"""Longest program in characters; a longer one is dropped."""

_PYTHON_FENCE = re.compile(r"```(?:python3?|py)\b", re.IGNORECASE)
_FENCED = re.compile(r"\s*```[A-Za-z0-9_+-]{0,20}[ \t]*\n?(.*?)(?:```\s*)?", re.DOTALL)
_FILTERS = threading.Lock()
_Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def written_program(completion: str) -> str | None:
    """Return the program of a completion; None without one.

    It is the content of the last answer block, without an enclosing fence. Without an answer block
    it is the last fence marked as Python, else the last fence. The same rule applies inside an
    answer block that is no Python as a whole, for instance with words before the fence.
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
    """Return the program that the published code extracts; it keeps fences in answer blocks."""
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
    """Return a text that equal programs share; None if it is no Python or only comments."""
    try:
        tree = _parse(program)
        for node in ast.walk(tree):
            if isinstance(node, _Scope):
                _drop_docstring(node)
        return _unparse(tree, program) or None
    except (SyntaxError, ValueError):
        return None
    except (RecursionError, MemoryError):  # nested too deep to decide whether it is valid
        return program


def _unparse(tree: ast.Module, program: str) -> str:
    try:
        return ast.unparse(tree)
    except ValueError:  # Python cannot print it, for instance a hexadecimal of 5,000 digits
        return program


def _parse(program: str) -> ast.Module:
    # Warning filters, here for escapes in the program's strings, belong to the whole process.
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(program)


def _drop_docstring(node: _Scope) -> None:
    if ast.get_docstring(node, clean=False) is not None:
        node.body = node.body[1:] or [ast.Pass()]


def _present(program: str) -> str | None:
    stripped = program.strip()
    return stripped if stripped and len(stripped) <= MAX_PROGRAM else None
