"""The work of `modnorm votes`: find the votes of a run and print how they were decided."""

from collections.abc import Iterable
from functools import partial

from rich.table import Table

from modnorm.analysis.answers import AnswerFilter
from modnorm.analysis.finished_run import FinishedRun
from modnorm.analysis.votes import VoteFilter, VoteRecord
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

_HEADINGS = ("N", "K", "row", "gold", "answer", "correct", "votes", "valid", "right", "tie")
_TEXTS = {"gold", "answer", "correct", "tie"}


def print_votes(
    asked: Listed, wanted: VoteFilter, *, wrong: bool = False, tied: bool = False
) -> None:
    """Print the requested votes of a run.

    `wrong` leaves out right votes, `tied` leaves out votes without a tie.

    Raises:
        NotFoundError: no vote matches.
    """
    with opened_run(asked.run, asked.server) as found:
        some, every = peeked(found.votes(wanted))
        if not some:
            raise _no_vote(found, wanted)
        votes = (
            vote for vote in every if not (wrong and vote.correct) and (vote.tied or not tied)
        )
        if not print_records(votes, VoteRecord, asked.output):
            show_records(votes, asked.limit, whole=partial(_show_vote, found), listed=_table)


def _no_vote(run: FinishedRun, wanted: VoteFilter) -> NotFoundError:
    no_ensemble = not any(map(wanted.wants_ensemble, run.ensembles))
    rows = max((ensemble.rows for ensemble in run.ensembles), default=0)
    names = (f"N={each.population} K={each.ensemble_size}" for each in run.ensembles)
    return NotFoundError(
        "no vote matches",
        field="n, k" if no_ensemble else "row",
        remedy=f"held-out rows are 0 to {rows - 1}, ensembles are {', '.join(names)}",
    )


def _table(votes: Iterable[VoteRecord]) -> Table:
    rows = (
        (
            str(vote.population),
            str(vote.ensemble_size),
            str(vote.row),
            shown(vote.gold),
            shown(vote.answer),
            yes(vote.correct),
            str(vote.support),
            str(vote.valid),
            str(vote.correct_support),
            f"{len(vote.tied)} answers, expert {vote.tie_broken_by} decides" if vote.tied else "",
        )
        for vote in votes
    )
    return table(_HEADINGS, rows, _TEXTS)


def _show_vote(run: FinishedRun, vote: VoteRecord) -> None:
    """Show one vote with its prompt, its counts and each expert's answer."""
    console = stdout()
    asked = AnswerFilter(candidate=vote.experts[0], split="heldout", row=vote.row)
    prompt = next((answer.prompt for answer in run.answers(asked)), None)
    verdict = "right" if vote.correct else "wrong"
    lines = [
        f"N={vote.population} K={vote.ensemble_size}, held-out row {vote.row}: {verdict}",
        f"gold    {shown(vote.gold)}",
        _answer(vote),
        _tie(vote),
        f"\nprompt\n{prompt or '-'}\n",
    ]
    for line in filter(None, lines):
        console.print(line, soft_wrap=True)
    if vote.counts:
        counts = ((shown(each.answer), str(each.votes), str(each.expert)) for each in vote.counts)
        console.print(table(("answer", "votes", "best-ranked expert"), counts))
        console.print()
    console.print(table(("rank", "expert", "vote", "correct"), _experts(vote), {"vote"}))


def _answer(vote: VoteRecord) -> str:
    if vote.answer is None:
        return "answer  -, no expert gave a valid answer"
    return f"answer  {shown(vote.answer)}, {vote.support} of {vote.valid} valid votes"


def _tie(vote: VoteRecord) -> str:
    if not vote.tied:
        return ""
    answers = ", ".join(map(shown, vote.tied))
    return (
        f"tie     {answers} have most votes, {vote.support} each; expert {vote.tie_broken_by} "
        "decides, the best-ranked of theirs"
    )


def _experts(vote: VoteRecord) -> Iterable[tuple[str, ...]]:
    said = zip(vote.experts, vote.votes, vote.expert_correct, strict=True)
    for rank, (expert, answer, correct) in enumerate(said, 1):
        verdict = "left the row out" if correct is None else yes(correct)
        yield str(rank), str(expert), shown(answer), verdict
