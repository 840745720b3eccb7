r"""MATH-500 and OlympiadBench: competition mathematics, answered in `\boxed{}` or after `####`."""

from collections.abc import Mapping

from modnorm.tasks import columns
from modnorm.tasks.columns import AnswerTask
from modnorm.tasks.mathematics.answer_extraction import (
    final_answer,
    published_answer,
    published_judgement,
)
from modnorm.tasks.mathematics.canonical import canonical
from modnorm.tasks.protocol import Judgement, Message, Row

MATH500 = r"{problem} Please reason step by step, and put your final answer within \boxed{{}}."
OLYMPIADBENCH = (
    "{question}\n\nLet\u2019s think step by step and output the final answer after ####."
)


class Math500(AnswerTask):
    r"""The MATH-500 task; rows are `{"problem": ..., "answer": "\frac{1}{2}"}`."""

    name = "math500"
    scorer = "math500-v3"
    max_tokens = 2048

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Check the columns `problem` and `answer`; drop the rest."""
        return {"problem": columns.text(raw, "problem"), "answer": columns.text(raw, "answer")}

    def parse_question(self, raw: Mapping[str, object]) -> Row:
        return {"problem": columns.text(raw, "problem")}

    def messages(self, row: Row) -> tuple[Message, ...]:
        return (Message("user", MATH500.format(problem=row["problem"])),)

    def vote(self, row: Row, completion: str) -> str | None:
        answer = final_answer(completion)
        return None if answer is None else self.form(row, answer)

    def form(self, row: Row, answer: str) -> str:  # noqa: ARG002 - as in `AnswerTask`
        return canonical(answer)

    def gold(self, row: Row) -> str:
        return str(row["answer"])


class OlympiadBench(Math500):
    """The OlympiadBench task; rows have `question`, `final_answer`, `is_multiple_answer`."""

    name = "olympiadbench"
    scorer = "olympiadbench-v3"

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Check the columns `question` and `final_answer`, a list whose first entry is used.

        `is_multiple_answer` states whether that entry is a list of answers; the default is false.
        """
        return {**self.parse_question(raw), "final_answer": columns.texts(raw, "final_answer")[:1]}

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
        return (Message("user", OLYMPIADBENCH.format(question=row["question"])),)

    def form(self, row: Row, answer: str) -> str:
        """Return the canonical form of an answer, or of a list of answers."""
        return canonical(answer, thousands=not row["is_multiple_answer"])

    def gold(self, row: Row) -> str:
        """Return the row's answer without enclosing dollar signs."""
        answers = row["final_answer"]
        answer = str(answers[0] if isinstance(answers, list) else answers).strip()
        return answer.removeprefix("$").removesuffix("$").strip()


class PublishedMath500(Math500):
    """MATH-500 scored as the published code does: the vote is the answer as written."""

    scorer = "math500-reference-v1"

    def vote(self, row: Row, completion: str) -> str | None:  # noqa: ARG002 - as in the protocol
        return published_answer(completion) or None

    def judge(self, row: Row, completion: str) -> Judgement:
        """Score one completion: reward 1 if the published comparison accepts its answer."""
        return published_judgement(completion, self.gold(row))


class PublishedOlympiadBench(PublishedMath500, OlympiadBench):
    """OlympiadBench scored as the published code does."""

    scorer = "olympiadbench-reference-v1"
