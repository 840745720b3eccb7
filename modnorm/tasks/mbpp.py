"""MBPP: Python programs, right when all stored tests pass.

The prompt shows at most three tests; all of them score. Programs run in a sandbox, never in this
process.

`mbpp-v1` votes by the canonical program (`modnorm.tasks.mbpp`), so that spacing, comments and
docstrings do not split a vote. The set-up code comes after the program, whose classes it uses.

`mbpp-reference-v1` votes by the exact text and keeps Markdown fences inside the answer tag. It
puts the set-up code first, so no program can solve tasks 367 and 927.

Both refuse rows with tests that `modnorm.sandbox.planning` cannot judge.
"""

import ast
import re
import threading
import warnings
from collections.abc import Mapping
from functools import lru_cache

from modnorm.errors import InvalidInputError
from modnorm.sandbox import Program, Runner
from modnorm.sandbox.execution import plan_tests
from modnorm.tasks import columns
from modnorm.tasks.columns import AnswerTask, last_answer, last_block, stated_answer
from modnorm.tasks.protocol import Judgement, Message, Row
from modnorm.tasks.registry import require_sandbox

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
            if isinstance(node, _Scope) and ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.Pass()]
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


def _present(program: str) -> str | None:
    stripped = program.strip()
    return stripped if stripped and len(stripped) <= MAX_PROGRAM else None


SYSTEM = (
    "You are a Python programming assistant. Write clean, correct Python code to solve the given "
    "problem."
)
USER = """\
{text}

Your code should pass these tests:
{tests}

Think through your solution in <think> </think> tags.
Return your final Python code in <answer> </answer> tags, e.g.:
<answer>
def solution(x):
    return x + 1
</answer>"""

SHOWN_TESTS = 3


class Mbpp(AnswerTask):
    """The MBPP task; rows have the data set's columns `text`, `test_list`, `test_setup_code`."""

    name = "mbpp"
    scorer = "mbpp-v1"
    max_tokens = 2048

    def __init__(self, sandbox: Runner | None = None) -> None:
        self._sandbox = sandbox

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Check the columns `text`, `test_list` and `test_setup_code` (optional)."""
        row = self.parse_question(raw)
        try:
            plan_tests(columns.texts(row, "test_list"))
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{error.field}: {error.message}", field="test_list", remedy=error.remedy
            ) from error
        return row

    def parse_question(self, raw: Mapping[str, object]) -> Row:
        """Check the columns of `parse`; the tests are shown, and need not be judgeable."""
        return {
            "text": columns.text(raw, "text"),
            "test_list": columns.texts(raw, "test_list"),
            "test_setup_code": columns.optional_text(raw, "test_setup_code"),
        }

    def messages(self, row: Row) -> tuple[Message, ...]:
        tests = "\n".join(columns.texts(row, "test_list")[:SHOWN_TESTS])
        return Message("system", SYSTEM), Message(
            "user", USER.format(text=row["text"], tests=tests)
        )

    def vote(self, row: Row, completion: str) -> str | None:  # noqa: ARG002 - as in the protocol
        program = self._program(completion)
        return None if program is None else self._vote(program)

    def judge(self, row: Row, completion: str) -> Judgement:
        """Score one completion: reward 1 if its program passes all tests."""
        program = self._program(completion)
        passed = False
        if program is not None:
            sources = self._sources(columns.optional_text(row, "test_setup_code"), program)
            sandbox = require_sandbox(self.name, self._sandbox)
            passed = sandbox.execute(Program(sources, columns.texts(row, "test_list"))).passed
        vote = self.vote(row, completion)
        return Judgement(reward=float(passed), vote=vote, correct=passed and vote is not None)

    def gold(self, row: Row) -> str:
        return "\n".join(columns.texts(row, "test_list"))

    def _program(self, completion: str) -> str | None:
        return written_program(completion)

    def _vote(self, program: str) -> str | None:
        return canonical_program(program)

    def _sources(self, setup: str, program: str) -> tuple[str, ...]:
        return program, setup


class PublishedMbpp(Mbpp):
    """MBPP with the published extraction, set-up code first, votes by exact text."""

    scorer = "mbpp-reference-v1"

    def _program(self, completion: str) -> str | None:
        return published_program(completion)

    def _vote(self, program: str) -> str | None:
        return program

    def _sources(self, setup: str, program: str) -> tuple[str, ...]:
        return setup, program
