"""The work of `modnorm answers`: find the answers of a run and print them."""

from collections.abc import Iterable
from dataclasses import replace

from rich.table import Table

from modnorm.analysis.answers import BASE_INDEX, AnswerFilter, AnswerRecord
from modnorm.analysis.finished_run import FinishedRun
from modnorm.cli.console import stdout, table
from modnorm.cli.records_output import (
    Listed,
    peeked,
    print_records,
    show_records,
    shown,
    yes,
)
from modnorm.cli.runs import opened_run
from modnorm.errors import NotFoundError

_HEADINGS = (
    "candidate", "split", "row", "gold", "vote", "reward", "correct", "tokens", "completion",
)  # fmt: skip
_TEXTS = {"split", "gold", "vote", "correct", "completion"}
_NAMED = 10
"""Experts that an error names."""


def print_answers(asked: Listed, wanted: AnswerFilter) -> None:
    """Print the requested answers of a run.

    Raises:
        NotFoundError: no stored answer matches.
    """
    with opened_run(asked.run, asked.server) as found:
        some, answers = peeked(found.answers(wanted))
        if not some and not _has_answer(found, replace(wanted, wrong=False)):
            raise _no_answer(found, wanted)
        if not print_records(answers, AnswerRecord, asked.output):
            show_records(answers, asked.limit, whole=_show_answer, listed=_table)


def _has_answer(run: FinishedRun, wanted: AnswerFilter) -> bool:
    return peeked(run.answers(wanted))[0]


def _no_answer(run: FinishedRun, wanted: AnswerFilter) -> NotFoundError:
    if wanted.row is not None and _has_answer(run, replace(wanted, row=None, wrong=False)):
        return NotFoundError(
            "no stored answer matches",
            field="row",
            remedy="rows are counted from 0; the same command without --row lists them",
        )
    experts = sorted({index for ensemble in run.ensembles for index in ensemble.experts})
    named = [str(expert) for expert in experts[:_NAMED]]
    more = ["..."] if len(experts) > _NAMED else []
    return NotFoundError(
        "no stored answer matches",
        field="candidate",
        remedy=f"candidates are 0 to {len(run.candidates) - 1}, the base is -1; only the base and "
        f"experts ({', '.join([*named, *more])}) answered held-out rows",
    )


def _table(answers: Iterable[AnswerRecord]) -> Table:
    rows = (
        (
            str(answer.candidate),
            answer.split,
            str(answer.row),
            shown(answer.gold),
            shown(answer.vote),
            f"{answer.reward:.4f}",
            yes(answer.correct),
            str(answer.tokens),
            shown(answer.completion, end=True),
        )
        for answer in answers
    )
    return table(_HEADINGS, rows, _TEXTS)


def _show_answer(answer: AnswerRecord) -> None:
    """Show one answer with its prompt and its completion."""
    console = stdout()
    verdict = "right" if answer.correct else "wrong"
    cut = ", cut off by the cap" if answer.truncated else ""
    who = "base" if answer.candidate == BASE_INDEX else f"candidate {answer.candidate}"
    measured = f"reward {answer.reward:.4f}, {answer.tokens} tokens{cut}"
    lines = (
        f"{who}, {answer.split} row {answer.row}: {verdict}, {measured}",
        f"gold  {shown(answer.gold)}",
        f"vote  {shown(answer.vote)}",
        f"\nprompt\n{answer.prompt or '-'}",
        f"\ncompletion\n{answer.completion}",
    )
    for line in lines:
        console.print(line, soft_wrap=True)
