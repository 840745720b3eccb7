r"""MATH-500: competition problems with an answer in `\boxed{}`.

`math500-v3` compares canonical forms (`modnorm.tasks.mathematics.canonical`);
`math500-reference-v1` compares as the published code does.
"""

from collections.abc import Mapping, Sequence

from modnorm.tasks import columns
from modnorm.tasks.columns import RIGHT_OR_WRONG, accuracy, judge_vote
from modnorm.tasks.mathematics.answer_extraction import (
    final_answer,
    published_answer,
    published_judgement,
)
from modnorm.tasks.mathematics.canonical import canonical
from modnorm.tasks.protocol import Judgement, Message, Row

USER = r"{problem} Please reason step by step, and put your final answer within \boxed{{}}."


class Math500:
    r"""The MATH-500 task; rows are `{"problem": ..., "answer": "\frac{1}{2}"}`."""

    name = "math500"
    scorer = "math500-v3"
    max_tokens = 2048
    reward_bounds = RIGHT_OR_WRONG

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Check the columns `problem` and `answer`; drop the rest."""
        return {"problem": columns.text(raw, "problem"), "answer": columns.text(raw, "answer")}

    def parse_question(self, raw: Mapping[str, object]) -> Row:
        """Check the column `problem`; drop the rest."""
        return {"problem": columns.text(raw, "problem")}

    def messages(self, row: Row) -> tuple[Message, ...]:
        """Return the paper's prompt (app. "Prompt Templates"); there is no system message."""
        return (Message("user", USER.format(problem=row["problem"])),)

    def vote(self, row: Row, completion: str) -> str | None:  # noqa: ARG002 - as in the protocol
        """Return the vote key of a completion."""
        answer = final_answer(completion)
        return None if answer is None else canonical(answer)

    def judge(self, row: Row, completion: str) -> Judgement:
        """Score one completion: reward 1 for an answer equal to the row's, else 0."""
        return judge_vote(self.vote(row, completion), canonical(str(row["answer"])))

    def gold(self, row: Row) -> str:
        """Return the answer as the row writes it."""
        return str(row["answer"])

    def metric(self, rows: Sequence[Row], correct: Sequence[bool]) -> float:
        """Accuracy."""
        return accuracy(rows, correct)


class PublishedMath500(Math500):
    """MATH-500 scored as the published code does: the vote is the answer as written."""

    scorer = "math500-reference-v1"

    def vote(self, row: Row, completion: str) -> str | None:  # noqa: ARG002 - as in the protocol
        """Return the vote key of a completion."""
        return published_answer(completion) or None

    def judge(self, row: Row, completion: str) -> Judgement:
        """Score one completion: reward 1 if the published comparison accepts its answer."""
        return published_judgement(completion, str(row["answer"]))
