"""GSM8K: grade-school word problems with a number as the answer.

Scorer `gsm8k-v2` (paper: "normalized final-answer matching") reads the whole completion. The
answer is the number after the last `####`, also after a calculation there, else the last number.
Numbers are compared and voted in one canonical form: `1,000`, `1000`, `$1000.00` and `1000.` are
one answer.

Scorer `gsm8k-reference-v1` extracts, compares and votes as the published code does. It reads only
the last 300 characters.
"""

import re
from collections import deque
from collections.abc import Mapping, Sequence

from modnorm.errors import InvalidInputError
from modnorm.tasks import columns
from modnorm.tasks.protocol import Judgement, Message, Row
from modnorm.tasks.single_answer import RIGHT_OR_WRONG, accuracy, judge_vote

USER = '{question} Let\'s think step by step and output the final answer after "####".'

WINDOW = 300
"""Characters at the end of a completion that the published code reads."""

# A minus after a digit or a parenthesis subtracts; elsewhere it is a sign.
_NUMBER = (
    r"(?P<sign>(?<![0-9)])[-\u2212])?\$?"
    r"(?P<digits>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
)
_ANY_NUMBER = re.compile(_NUMBER)
_PUBLISHED_NUMBER = re.compile(r"-?[0-9.,]+")
_PUBLISHED_MARKED_NUMBER = re.compile(r"#### (-?[0-9.,]+)")
_OPERATORS = r"+*/x\u00d7\u00f7\u2212-"
_CALCULATION = rf"-?[0-9.][0-9., $()]*[{_OPERATORS}][0-9., $(){_OPERATORS}]*=[\s$]*"
_MARKED_NUMBER = re.compile(
    rf"####[\s*_$:=`(\\]*(?:boxed\{{[\s$\\]*)?(?:{_CALCULATION})?{_NUMBER}"
)


class Gsm8k:
    """The GSM8K task; rows are `{"question": ..., "answer": "18"}` with a canonical answer."""

    name = "gsm8k"
    scorer = "gsm8k-v2"
    max_tokens = 1024
    reward_bounds = RIGHT_OR_WRONG

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Check the columns `question` and `answer` (a solution with `#### n`, or n alone).

        Raises:
            InvalidInputError: a column is missing or malformed.
        """
        question = columns.text(raw, "question")
        answer = final_answer(columns.text(raw, "answer"))
        if answer is None:
            raise InvalidInputError('must end with "#### " and a number', field="answer")
        return {"question": question, "answer": answer}

    def parse_question(self, raw: Mapping[str, object]) -> Row:
        """Check the column `question`; drop the rest."""
        return {"question": columns.text(raw, "question")}

    def messages(self, row: Row) -> tuple[Message, ...]:
        """Return the paper's prompt (app. "Prompt Templates"); there is no system message."""
        return (Message("user", USER.format(question=row["question"])),)

    def vote(self, row: Row, completion: str) -> str | None:  # noqa: ARG002 - as in the protocol
        """Return the vote key of a completion."""
        return final_answer(completion)

    def judge(self, row: Row, completion: str) -> Judgement:
        """Score one completion: reward 1 for the right final answer, else 0."""
        return judge_vote(self.vote(row, completion), str(row["answer"]))

    def gold(self, row: Row) -> str:
        """Return the final number."""
        return str(row["answer"])

    def metric(self, rows: Sequence[Row], correct: Sequence[bool]) -> float:
        """Accuracy."""
        return accuracy(rows, correct)


class PublishedGsm8k(Gsm8k):
    """GSM8K scored as the published code does.

    The vote is the text after the last `#### ` without commas. Without a mark it is the last run
    of digits, dots and commas as written. So `1,000` and `1000` are two votes, both right, and
    `18.` is wrong. A right last number makes up for a wrong marked answer.
    """

    scorer = "gsm8k-reference-v1"

    def vote(self, row: Row, completion: str) -> str | None:  # noqa: ARG002 - as in the protocol
        """Return the vote key of a completion."""
        marked, last = published_readings(completion)
        return (last if marked is None else marked) or None

    def judge(self, row: Row, completion: str) -> Judgement:
        """Score one completion: reward 1 if either reading is the row's answer, else 0."""
        vote = self.vote(row, completion)
        return Judgement(
            reward=float(row["answer"] in published_readings(completion)),
            vote=vote,
            # The published code marks the vote again and accepts either reading.
            correct=bool(vote) and row["answer"] in published_readings(f"#### {vote}"),
        )


def published_readings(completion: str) -> tuple[str | None, str | None]:
    """Return the marked answer and the last number, each None if missing."""
    tail = completion[-WINDOW:]
    marked = _PUBLISHED_MARKED_NUMBER.findall(tail)
    numbers = _PUBLISHED_NUMBER.findall(tail)
    last = next((number for number in reversed(numbers) if number != "."), None)
    if last is None and numbers:
        last = numbers[0]
    return (marked[-1].replace(",", "") if marked else None), last


def final_answer(completion: str) -> str | None:
    """Return the final number of a completion in canonical form; None without one.

    The canonical form has no thousands separators, currency sign, leading zeros or trailing zeros
    of a fraction, and zero has no sign.
    """
    number = _last(_MARKED_NUMBER, completion) or _last(_ANY_NUMBER, completion)
    return None if number is None else _canonical(number)


def number_form(text: str) -> str | None:
    """Return a number's canonical form; None if the text is no number."""
    number = _ANY_NUMBER.fullmatch(text.strip().rstrip("."))
    return None if number is None else _canonical(number)


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


def _canonical(number: re.Match[str]) -> str:
    whole, _, part = number["digits"].replace(",", "").partition(".")
    digits = ".".join(filter(None, (whole.lstrip("0") or "0", part.rstrip("0"))))
    return f"-{digits}" if number["sign"] and digits != "0" else digits
