"""GSM8K: grade-school word problems with a number as the answer.

Scorer `gsm8k-v3` (paper: "normalized final-answer matching") reads the whole completion. The
answer is the number in a box, after the last `####`, or after "answer is", else the last number.
Numbers are compared and voted in one canonical form (`modnorm.tasks.mathematics.numbers`):
`1,000`, `$1000.00` and `1{,}000` are one answer.

Scorer `gsm8k-reference-v1` extracts, compares and votes as the published code does. It reads only
the last 300 characters.
"""

import re
from collections.abc import Mapping

from modnorm.errors import InvalidInputError
from modnorm.tasks import columns
from modnorm.tasks.columns import AnswerTask
from modnorm.tasks.mathematics.answer_extraction import final_answer
from modnorm.tasks.mathematics.numbers import is_spelled, last_number, number, stated_number
from modnorm.tasks.protocol import Judgement, Message, Row

USER = '{question} Let\'s think step by step and output the final answer after "####".'

WINDOW = 300
"""Characters at the end of a completion that the published code reads."""

_PUBLISHED_NUMBER = re.compile(r"-?[0-9.,]+")
_PUBLISHED_MARKED_NUMBER = re.compile(r"#### (-?[0-9.,]+)")

_ASKED = re.compile(
    r"\bhow many (?:more )?(dozens?|(?:hundred|thousand|million|billion)s?)\b"
    r"|\b(?:in|in the) ((?:dozen|hundred|thousand|million|billion)s)\b",
    re.IGNORECASE,
)
"""A scale word that is the unit of the answer: `4 dozen` is 4 if a question asks for dozens."""


class Gsm8k(AnswerTask):
    """The GSM8K task; rows are `{"question": ..., "answer": "18"}` with a canonical answer."""

    name = "gsm8k"
    scorer = "gsm8k-v3"
    max_tokens = 1024

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Check the columns `question` and `answer` (a solution that ends in `#### n`, or n)."""
        question = columns.text(raw, "question")
        answer = number(columns.text(raw, "answer").rpartition("####")[2])
        if answer is None:
            raise InvalidInputError('must be a number, or end in "#### " and one', field="answer")
        return {"question": question, "answer": answer}

    def parse_question(self, raw: Mapping[str, object]) -> Row:
        return {"question": columns.text(raw, "question")}

    def read_prompt(self, prompt: str) -> Row:
        """Return the prompt as the question, whose words tell the unit of the answer."""
        return {"question": prompt}

    def messages(self, row: Row) -> tuple[Message, ...]:
        return (Message("user", USER.format(question=row["question"])),)

    def vote(self, row: Row, completion: str) -> str | None:
        """Return the vote key of a completion, in the unit that the question asks for."""
        asked = _ASKED.search(str(row.get("question", "")))
        if asked is not None:
            scale = (asked[1] or asked[2]).removesuffix("s")
            completion = re.sub(rf"\b{scale}s?\b", "units", completion, flags=re.IGNORECASE)
        return final_number(completion)

    def gold(self, row: Row) -> str:
        return str(row["answer"])


class PublishedGsm8k(Gsm8k):
    """GSM8K scored as the published code does.

    The vote is the text after the last `#### ` without commas. Without a mark it is the last run
    of digits, dots and commas as written. So `1,000` and `1000` are two votes, both right, and
    `18.` is wrong. A right last number makes up for a wrong marked answer.
    """

    scorer = "gsm8k-reference-v1"

    def vote(self, row: Row, completion: str) -> str | None:  # noqa: ARG002 - as in the protocol
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


def final_number(completion: str) -> str | None:
    """Return the final number of a completion in canonical form; None without one."""
    answer = final_answer(completion, headings=False)
    if answer is not None and any(map(str.isnumeric, answer)):
        return stated_number(answer)
    if answer is not None and is_spelled(answer):
        return None
    return last_number(completion)
