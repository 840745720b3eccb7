"""`modnorm candidates`, `answers` and `votes`: a finished run, line by line."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import partial
from itertools import chain, islice
from math import inf
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from modnorm.cli.console import echo, echo_table, on_one_line, output, percent, say
from modnorm.cli.options import Run, RunServer, open_run, opt
from modnorm.errors import NotFoundError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from modnorm.analysis.candidates import CandidateRecord
    from modnorm.analysis.run import Run as FinishedRun
    from modnorm.analysis.votes import VoteRecord
    from modnorm.search.answers import AnswerRecord

RecordT = TypeVar("RecordT", "AnswerRecord", "VoteRecord", "CandidateRecord")
Limit = Annotated[int, opt("--limit LINES", "Most lines of the table.", min=1)]
Row = Annotated[int | None, opt("--row INDEX", "Only this row.", min=0)]
_TABLE_LINES = 50
_MORE = "more lines follow; --limit shows more, --json all"
_SHORT = 60
"""Characters of a text that a cell shows."""
_NAMED = 10
"""Experts that an error names."""


def candidates(run: Run, *, limit: Limit = _TABLE_LINES, server: RunServer = None) -> None:
    """Print the candidates of a run, best first.

    `reward` is the mean over the selection rows, and `selection tokens` counts what was generated
    for them. `gain` is the selection reward less that of the base. `held-out` is the metric of an
    expert on the held-out rows; it chooses nothing.
    """
    opened = open_run(run, server, tables=())
    found = sorted(opened.candidates, key=lambda each: (each.rank or inf, each.index))
    if _wrote_json(found):
        return
    headings = (
        *("rank", "candidate", "seed", "state", "reward", "gain", "held-out"),
        *("selection tokens", "give a vote", "cut off"),
    )
    reward, metric = _number(opened.base.selection_reward), percent(opened.base.heldout_metric)
    rows = [("-", "base", "-", "-", reward, "-", metric, "-", "-", "-")]
    for each in found[:limit]:
        valid, truncated = (
            percent(count / each.selection_answers if each.selection_answers else None)
            for count in (each.selection_valid, each.selection_truncated)
        )
        rows.append(
            (
                "-" if each.rank is None else str(each.rank),
                str(each.index),
                str(each.seed),
                each.state,
                _number(each.selection_reward),
                "-" if each.gain is None else f"{each.gain:+.4f}",
                percent(each.heldout_metric),
                str(each.selection_tokens),
                valid,
                truncated,
            )
        )
    echo_table(headings, rows, {"state"})
    if len(found) > limit:
        say(_MORE)


def _number(reward: float | None) -> str:
    return "-" if reward is None else f"{reward:.4f}"


def answers(
    run: Run,
    *,
    candidate: Annotated[
        int | None, opt("--candidate INDEX", "Only this candidate; -1 is the base.")
    ] = None,
    split: Annotated[
        str | None, opt("--split NAME", "Only selection, heldout or development rows.")
    ] = None,
    row: Row = None,
    wrong: Annotated[bool, opt("--wrong", "Only wrong answers.")] = False,
    limit: Limit = _TABLE_LINES,
    server: RunServer = None,
) -> None:
    """Print the answers of a run, with their judgement.

    A single answer is printed whole, with its prompt and its completion.
    """
    found = open_run(run, server)
    records = iter(found.answers(candidate, split, row, wrong=wrong))
    first = list(islice(records, 1))
    if not first and not any(True for _ in found.answers(candidate, split, row)):
        experts = sorted({index for ensemble in found.ensembles for index in ensemble.experts})
        names = ", ".join(map(str, experts[:_NAMED])) + (", ..." if len(experts) > _NAMED else "")
        raise NotFoundError(
            "no stored answer matches",
            field="candidate",
            remedy=f"only the base and experts ({names}) answered held-out rows",
        )
    records = chain(first, records)
    if not _wrote_json(records):
        _show(records, limit, whole=_show_answer, listed=_list_answers)


def _list_answers(records: "Iterable[AnswerRecord]") -> None:
    headings = (
        *("candidate", "split", "row", "gold", "vote", "reward", "correct", "tokens"),
        "completion",
    )
    rows = (
        (
            str(answer.candidate),
            answer.split,
            str(answer.row),
            _short(answer.gold),
            _short(answer.vote),
            f"{answer.reward:.4f}",
            "yes" if answer.correct else "no",
            str(answer.tokens),
            _short(answer.completion, end=True),
        )
        for answer in records
    )
    echo_table(headings, rows, {"split", "gold", "vote", "correct", "completion"})


def _show_answer(answer: "AnswerRecord") -> None:
    from modnorm.search.answers import BASE_INDEX

    verdict = "right" if answer.correct else "wrong"
    cut = ", cut off by the cap" if answer.truncated else ""
    who = "base" if answer.candidate == BASE_INDEX else f"candidate {answer.candidate}"
    measured = f"reward {answer.reward:.4f}, {answer.tokens} tokens{cut}"
    lines = (
        f"{who}, {answer.split} row {answer.row}: {verdict}, {measured}",
        f"gold  {_short(answer.gold)}",
        f"vote  {_short(answer.vote)}",
        f"\nprompt\n{answer.prompt or '-'}",
        f"\ncompletion\n{answer.completion}",
    )
    echo("\n".join(lines))


def votes(
    run: Run,
    *,
    row: Row = None,
    n: Annotated[int | None, opt("--n N", "Only this population size.", min=1)] = None,
    k: Annotated[int | None, opt("--k K", "Only this ensemble size.", min=1)] = None,
    wrong: Annotated[bool, opt("--wrong", "Only wrong votes.")] = False,
    tied: Annotated[bool, opt("--tied", "Only votes with a tie.")] = False,
    limit: Limit = _TABLE_LINES,
    server: RunServer = None,
) -> None:
    """Print the votes of a run: counts, ties, experts.

    A single vote is printed whole, with its prompt and with what each expert answered. `tie` names
    the number of tied answers and the expert that broke the tie: the best-ranked of those that
    gave one of them.
    """
    found = open_run(run, server)
    records = (
        vote
        for vote in found.votes(row, n, k)
        if not (wrong and vote.correct) and (vote.tied or not tied)
    )
    if not _wrote_json(records):
        _show(records, limit, whole=partial(_show_vote, found), listed=_list_votes)


def _list_votes(records: "Iterable[VoteRecord]") -> None:
    headings = ("N", "K", "row", "gold", "answer", "correct", "votes", "valid", "right", "tie")
    rows = (
        (
            str(vote.population),
            str(vote.ensemble_size),
            str(vote.row),
            _short(vote.gold),
            _short(vote.answer),
            "yes" if vote.correct else "no",
            str(vote.support),
            str(vote.valid),
            str(vote.correct_support),
            f"{len(vote.tied)} answers, expert {vote.tie_broken_by} decides" if vote.tied else "",
        )
        for vote in records
    )
    echo_table(headings, rows, {"gold", "answer", "correct", "tie"})


def _show_vote(run: "FinishedRun", vote: "VoteRecord") -> None:
    asked = run.answers(vote.experts[0], "heldout", vote.row)
    prompt = next((answer.prompt for answer in asked), None)
    verdict = "right" if vote.correct else "wrong"
    answer = (
        "-, no expert gave a valid answer"
        if vote.answer is None
        else f"{_short(vote.answer)}, {vote.support} of {vote.valid} valid votes"
    )
    lines = [
        f"N={vote.population} K={vote.ensemble_size}, held-out row {vote.row}: {verdict}",
        f"gold    {_short(vote.gold)}",
        f"answer  {answer}",
    ]
    if vote.tied:
        lines.append(
            f"tie     {', '.join(map(_short, vote.tied))} have most votes, {vote.support} each; "
            f"expert {vote.tie_broken_by} decides, the best-ranked of theirs"
        )
    echo("\n".join([*lines, f"\nprompt\n{prompt or '-'}\n"]))
    if vote.counts:
        counts = ((_short(each.answer), str(each.votes), str(each.expert)) for each in vote.counts)
        echo_table(("answer", "votes", "best-ranked expert"), counts)
        echo("")
    said = zip(vote.experts, vote.votes, vote.expert_correct, strict=True)
    rows = (
        (str(rank), str(expert), _short(given), "yes" if correct else "no")
        for rank, (expert, given, correct) in enumerate(said, 1)
    )
    echo_table(("rank", "expert", "vote", "correct"), rows, {"vote"})


def _wrote_json(records: Iterable[RecordT]) -> bool:
    """Write all records to stdout, one a line, if JSON is wanted; return whether it is."""
    if output.as_json:
        separator = "["
        for record in records:
            typer.echo(f"{separator}\n{json.dumps(record, default=_values)}", nl=False)
            separator = ","
        typer.echo("\n]" if separator == "," else "[]")
    return output.as_json


def _values(record: "DataclassInstance") -> dict[str, object]:
    """Return the fields of a record; `dataclasses.asdict` copies each value deeply."""
    return {each.name: getattr(record, each.name) for each in fields(record)}


def _show(
    records: Iterator[RecordT],
    limit: int,
    *,
    whole: Callable[[RecordT], None],
    listed: Callable[[Iterable[RecordT]], None],
) -> None:
    """Show a single record whole, several as a table of at most `limit` lines."""
    first = list(islice(records, limit))
    has_more = next(records, None) is not None
    if len(first) == 1 and not has_more:
        whole(first[0])
    else:
        listed(first)
        if has_more:
            say(_MORE)


def _short(text: str | None, *, end: bool = False) -> str:
    """Return a text on one line, cut to its beginning or `end`; a dash for None."""
    if text is None:
        return "-"
    line = on_one_line(" ".join(text.split()))
    if len(line) <= _SHORT:
        return line
    return f"...{line[-_SHORT:]}" if end else f"{line[:_SHORT]}..."
