"""What tasks share: fields of rows, tags of answers, and the grading of one right answer."""

import hashlib
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal

from modnorm.errors import InvalidInputError, shortened
from modnorm.files import canonical_json
from modnorm.tasks.protocol import Judgement, Message, Row


def encode_rows(rows: Iterable[Row]) -> list[str]:
    """Return each row as canonical JSON: sorted keys, no spaces, ASCII only."""
    return [canonical_json(row) for row in rows]


def rows_digest(rows: Iterable[Row]) -> str:
    """Return the SHA-256 of the rows' canonical JSON, one row a line."""
    return hashlib.sha256("\n".join(encode_rows(rows)).encode()).hexdigest()


def prompts_digest(prompts: Iterable[Sequence[Message]]) -> str:
    """Return the SHA-256 of prompts: the messages of each as a JSON line of roles and texts."""
    return hashlib.sha256("\n".join(map(_encode_prompt, prompts)).encode()).hexdigest()


def prompt_digests(prompts: Iterable[Sequence[Message]]) -> tuple[str, ...]:
    """Return the first 16 digits of the SHA-256 of each prompt."""
    return tuple(
        hashlib.sha256(_encode_prompt(prompt).encode()).hexdigest()[:16] for prompt in prompts
    )


def _encode_prompt(prompt: Sequence[Message]) -> str:
    return json.dumps([[each.role, each.content] for each in prompt])


def last_block(completion: str, opening: str, closing: str) -> str | None:
    """Return the content of the last block; None without a block.

    Blocks are searched from the left and end at the first closing tag, like matches of the regular
    expression `OPENING(.*?)CLOSING`.
    """
    content = None
    start = completion.find(opening)
    while start >= 0:
        end = completion.find(closing, start + len(opening))
        if end < 0:
            break
        content = completion[start + len(opening) : end]
        start = completion.find(opening, end + len(closing))
    return content


def last_answer(completion: str) -> str | None:
    """Return the content of the last `<answer>` block; None without a block."""
    return last_block(completion, "<answer>", "</answer>")


def stated_answer(completion: str) -> str | None:
    """Return the content of the last `<answer>` block after its last opening tag, if any."""
    answer = last_answer(completion)
    return None if answer is None else answer.rpartition("<answer>")[2]


class AnswerTask(ABC):
    """A task whose rows have one right answer: reward 1 for it, accuracy as the metric."""

    @abstractmethod
    def vote(self, row: Row, completion: str) -> str | None:
        """Return the vote key of a completion."""

    @abstractmethod
    def gold(self, row: Row) -> str:
        """Return the right answer as the row writes it."""

    def form(self, row: Row, answer: str) -> str | None:  # noqa: ARG002 - of other tasks
        """Return the form of an answer in which votes are compared."""
        return answer

    def judge(self, row: Row, completion: str) -> Judgement:
        """Score one completion: reward 1 for the right answer, else 0."""
        vote = self.vote(row, completion)
        correct = vote is not None and vote == self.form(row, self.gold(row))
        return Judgement(reward=float(correct), vote=vote, correct=correct)

    def metric(self, rows: Sequence[Row], correct: Sequence[bool]) -> float:
        """Return the fraction of rows whose answer is right."""
        return sum(is_right for _, is_right in zip(rows, correct, strict=True)) / len(rows)


_TRUE, _FALSE = frozenset({"true", "yes", "1"}), frozenset({"false", "no", "0", ""})
_DECIMAL = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?")


def quoted(columns: Iterable[str]) -> str:
    """Return column names for an error, cut if they are many."""
    return shortened(", ".join(map(repr, columns)))


def whole(value: object) -> object:
    """Return a number without a fraction, such as 98.0, as an integer; other values unchanged."""
    if not isinstance(value, float | Decimal) or not math.isfinite(value):
        return value
    return int(value) if value == int(value) else float(value)


def number(value: object) -> object:
    """Return `whole` of a number or of its decimal text; other values unchanged."""
    is_decimal = isinstance(value, str) and _DECIMAL.fullmatch(value.strip())
    return whole(Decimal(str(value).strip()) if is_decimal else value)


def number_text(value: float | Decimal) -> str:
    """Return a finite number's decimal text, without an exponent and trailing zeros."""
    if isinstance(value, int):
        return str(value)
    text = format(Decimal(repr(value)) if isinstance(value, float) else value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def text(raw: Mapping[str, object], column: str) -> str:
    """Return a text column that a tokenizer can encode; a number as its text."""
    if _is_missing(raw.get(column)):
        raise InvalidInputError("must be text", field=column)
    value = optional_text(raw, column)
    if not value.strip():
        raise InvalidInputError("is empty; it must hold text", field=column)
    return value


def holds_half_pair(text: str) -> bool:
    """Return whether a text holds half a surrogate pair, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def optional_text(raw: Mapping[str, object], column: str) -> str:
    """Return a text column, a number as its text; "" if it is missing or blank."""
    value = raw.get(column)
    if _is_missing(value):
        return ""
    if isinstance(value, int | float | Decimal) and type(value) is not bool:
        if not isinstance(value, int) and not math.isfinite(value):
            raise InvalidInputError("must be finite", field=column)
        return number_text(value)
    if not isinstance(value, str):
        raise InvalidInputError("must be text", field=column)
    if holds_half_pair(value):
        raise InvalidInputError("holds half a surrogate pair", field=column)
    return value


def listed(raw: Mapping[str, object], column: str) -> object:
    """Return a column; the text of a JSON list, as in CSV files, is returned as the list."""
    value = raw.get(column)
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def texts(raw: Mapping[str, object], column: str) -> list[str]:
    """Return a column that holds a list of at least one text; see `listed`."""
    value = listed(raw, column)
    if not isinstance(value, list) or not value:
        raise InvalidInputError("must be a list of texts", field=column)
    return [text({column: item}, column) for item in value]


def flag(raw: Mapping[str, object], column: str) -> bool:
    """Return a truth value, also of 0, 1, `True` or `no`; False if it is missing."""
    value = raw.get(column)
    key = "" if _is_missing(value) else str(number(value)).strip().lower()
    if key not in _TRUE | _FALSE:
        raise InvalidInputError("must be true or false", field=column)
    return key in _TRUE


def _is_missing(value: object) -> bool:
    """Whether a value is null; tables write NaN for it."""
    return value is None or (isinstance(value, float | Decimal) and math.isnan(value))
