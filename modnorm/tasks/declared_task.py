"""Tasks that a text declares: prompt, columns, extraction, comparison.

The scorer's name contains a digest of the declaration, so results of different declarations are
never confused. The file is read once. Its text is part of the stored spec, of each job and of the
results.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from modnorm.errors import InvalidInputError
from modnorm.spec import ExperimentSpec
from modnorm.tasks import columns
from modnorm.tasks.protocol import Judgement, Message, Row
from modnorm.tasks.row_files import resolve_file
from modnorm.tasks.single_answer import RIGHT_OR_WRONG, accuracy, judge_vote
from modnorm.tasks.task_declaration import (
    Declaration,
    compile_expression,
    is_task_file,
    parse_declaration,
    read_declaration,
)

SEARCHED = 65_536
"""Characters of a completion that are searched: the first, or with `match: last` the last."""
MAX_ANSWER = 1000
"""Longest extracted answer in characters; a longer one is dropped."""
_MATCHING = "re2-1"
"""Version of the matching, which is part of the scorer's digest."""
_COMPARING: Mapping[str, Mapping[str, str]] = {
    "number": {"comparing": "number-2"},
    "mathematics": {"comparing": "mathematics-3"},
}
"""Versions of comparisons, by name; a comparison's first version has no entry."""


def _exact(answer: str) -> str | None:
    return answer.strip() or None


def _caseless(answer: str) -> str | None:
    return " ".join(answer.split()).casefold() or None


def _number(answer: str) -> str | None:
    from modnorm.tasks.mathematics.numbers import stated_number  # noqa: PLC0415 - loads mpmath

    return stated_number(answer)


def _number_alone(answer: str) -> str | None:
    from modnorm.tasks.mathematics.numbers import number  # noqa: PLC0415 - loads mpmath

    return number(answer)


def _mathematics(answer: str) -> str | None:
    from modnorm.tasks.mathematics.canonical import canonical  # noqa: PLC0415 - loads mpmath

    return canonical(answer) if answer.strip() else None


COMPARISONS: Mapping[str, Callable[[str], str | None]] = MappingProxyType(
    {"exact": _exact, "caseless": _caseless, "number": _number, "mathematics": _mathematics}
)
"""Canonical forms of answers for comparison and votes, by the name of the comparison."""


class DeclaredTask:
    """A task made from a declaration; reward 1 for the right answer, accuracy as the metric."""

    reward_bounds = RIGHT_OR_WRONG

    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration
        self._pattern = compile_expression(declaration.extract.regex)
        self._form = COMPARISONS[declaration.compare]
        content = {**declaration.model_dump(mode="json"), "matching": _MATCHING}
        content |= _COMPARING.get(declaration.compare, {})
        text = json.dumps(content, sort_keys=True)
        self._digest = hashlib.sha256(text.encode()).hexdigest()

    @property
    def name(self) -> str:
        """The declaration's name."""
        return self._declaration.name

    @property
    def scorer(self) -> str:
        """The declaration's name and the start of its digest."""
        return f"{self.name}-{self._digest[:16]}"

    @property
    def max_tokens(self) -> int:
        """The declaration's completion cap."""
        return self._declaration.max_tokens

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Check the declared columns; drop the rest.

        Raises:
            InvalidInputError: a column is missing or no text, or the answer has no form.
        """
        row = {column: _cell(raw, column) for column in self._declaration.columns}
        answer, form = self._declaration.answer, self._form
        if (_number_alone if form is _number else form)(row[answer]) is None:
            raise InvalidInputError(
                f"cannot be compared as {self._declaration.compare}", field=answer
            )
        return row

    def parse_question(self, raw: Mapping[str, object]) -> Row:
        """Check the columns that the prompt names; drop the rest."""
        return {column: _cell(raw, column) for column in self._declaration.question_columns}

    def messages(self, row: Row) -> tuple[Message, ...]:
        """Return the declared prompt."""
        prompt = self._declaration.prompt
        user = Message("user", prompt.user.format(**row))
        if prompt.system is None:
            return (user,)
        return Message("system", prompt.system.format(**row)), user

    def vote(self, row: Row, completion: str) -> str | None:  # noqa: ARG002 - as in the protocol
        """Return the vote key of a completion."""
        answer = self._extract(completion)
        return None if answer is None else self._form(answer)

    def judge(self, row: Row, completion: str) -> Judgement:
        """Score one completion: reward 1 for the row's answer, else 0."""
        vote = self.vote(row, completion)
        return judge_vote(vote, self._form(str(row[self._declaration.answer])))

    def gold(self, row: Row) -> str:
        """Return the declared column of the answer."""
        return str(row[self._declaration.answer])

    def metric(self, rows: Sequence[Row], correct: Sequence[bool]) -> float:
        """Accuracy."""
        return accuracy(rows, correct)

    def _extract(self, completion: str) -> str | None:
        first = self._declaration.extract.match == "first"
        text = completion[:SEARCHED] if first else completion[-SEARCHED:]
        # RE2 searches UTF-8, which cannot hold half a surrogate pair.
        matches = self._pattern.finditer(text.encode("utf-8", "replace").decode())
        match = next(matches, None) if first else next(iter(deque(matches, maxlen=1)), None)
        answer = None if match is None else match[self._pattern.groups]
        return answer if answer and len(answer) <= MAX_ANSWER else None


def declared_task(text: str, *, source: str, field: str) -> DeclaredTask:
    """Return the task that a text declares.

    Raises:
        InvalidInputError: the text is no declaration; the message names line and field of each
            fault.
    """
    return DeclaredTask(parse_declaration(text, source=source, field=field))


def load_task(path: Path) -> DeclaredTask:
    """Return the task that a file declares.

    Raises:
        InvalidInputError: there is no such file, or its content is no declaration.
    """
    text = read_declaration(resolve_file(str(path), "task.name", None))
    return declared_task(text, source=str(path), field="task.name")


def carry_declaration(spec: ExperimentSpec) -> ExperimentSpec:
    """Return a spec that contains the text of its task file, if it names one.

    Raises:
        InvalidInputError: there is no such file, or its content is no declaration.
    """
    name = spec.task.name
    if spec.task.declaration is not None or not is_task_file(name):
        return spec
    text = read_declaration(resolve_file(name, "task.name", None))
    declared = parse_declaration(text, source=name, field="task.name")
    task = spec.task.model_copy(update={"name": declared.name, "declaration": text})
    return spec.model_copy(update={"task": task})


def _cell(raw: Mapping[str, object], column: str) -> str:
    value = raw.get(column)
    return str(value) if isinstance(value, bool) else columns.text(raw, column)
