"""OlympiadBench: olympiad mathematics with an answer after `####`.

`olympiadbench-v3` compares canonical forms. If the row has several answers, commas separate them.
`olympiadbench-reference-v1` compares as the published code does: it does not know `####` and finds
answers by boxes and closing phrases only.
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

USER = "{question}\n\nLet\u2019s think step by step and output the final answer after ####."


class OlympiadBench:
    """The OlympiadBench task; rows have `question`, `final_answer`, `is_multiple_answer`.

    These are the columns of the data set.
    """

    name = "olympiadbench"
    scorer = "olympiadbench-v3"
    max_tokens = 2048
    reward_bounds = RIGHT_OR_WRONG

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Check the columns `question` and `final_answer`, a list whose first entry is used.

        `is_multiple_answer` states whether that entry is a list of answers; the default is false.
        """
        return {
            "question": columns.text(raw, "question"),
            "final_answer": columns.texts(raw, "final_answer")[:1],
            "is_multiple_answer": columns.flag(raw, "is_multiple_answer"),
        }

    def parse_question(self, raw: Mapping[str, object]) -> Row:
        """Check the columns `question` and `is_multiple_answer`; drop the rest."""
        return {
            "question": columns.text(raw, "question"),
            "is_multiple_answer": columns.flag(raw, "is_multiple_answer"),
        }

    def read_prompt(self, prompt: str) -> Row:  # noqa: ARG002 - as in the protocol
        """Return a question with one answer: the prompt does not say how many there are."""
        return {"is_multiple_answer": False}

    def messages(self, row: Row) -> tuple[Message, ...]:
        """Return the paper's prompt (app. "Prompt Templates"); there is no system message."""
        return (Message("user", USER.format(question=row["question"])),)

    def vote(self, row: Row, completion: str) -> str | None:
        """Return the vote key of a completion."""
        answer = final_answer(completion)
        return None if answer is None else _form(row, answer)

    def judge(self, row: Row, completion: str) -> Judgement:
        """Score one completion: reward 1 for an answer equal to the row's, else 0."""
        return judge_vote(self.vote(row, completion), _form(row, truth(row)))

    def gold(self, row: Row) -> str:
        """Return the answer as the row writes it."""
        return truth(row)

    def metric(self, rows: Sequence[Row], correct: Sequence[bool]) -> float:
        """Accuracy."""
        return accuracy(rows, correct)


class PublishedOlympiadBench(OlympiadBench):
    """OlympiadBench scored as the published code does: the vote is the answer as written."""

    scorer = "olympiadbench-reference-v1"

    def vote(self, row: Row, completion: str) -> str | None:  # noqa: ARG002 - as in the protocol
        """Return the vote key of a completion."""
        return published_answer(completion) or None

    def judge(self, row: Row, completion: str) -> Judgement:
        """Score one completion: reward 1 if the published comparison accepts its answer."""
        return published_judgement(completion, truth(row))


def truth(row: Row) -> str:
    """Return the row's answer without enclosing dollar signs."""
    answers = row["final_answer"]
    answer = str(answers[0] if isinstance(answers, list) else answers).strip()
    return answer.removeprefix("$").removesuffix("$").strip()


def _form(row: Row, answer: str) -> str:
    return canonical(answer, thousands=not row["is_multiple_answer"])
