"""`modnorm candidates`, `answers` and `votes`: a finished run, line by line."""

from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.cli.options import Json, Run, RunServer
from modnorm.errors import InvalidInputError

if TYPE_CHECKING:
    from modnorm.cli.records_output import Output

Candidate = Annotated[
    int | None,
    typer.Option("--candidate", metavar="INDEX", help="Only this candidate; -1 is the base."),
]
Split = Annotated[
    str | None,
    typer.Option("--split", metavar="NAME", help="Only selection, heldout or development rows."),
]
State = Annotated[
    str | None,
    typer.Option("--state", metavar="STATE", help="Only scored, stopped or failed ones."),
]
Row = Annotated[int | None, typer.Option("--row", metavar="INDEX", min=0, help="Only this row.")]
Wrong = Annotated[bool, typer.Option("--wrong", help="Only wrong answers.")]
WrongVotes = Annotated[bool, typer.Option("--wrong", help="Only wrong votes.")]
Tied = Annotated[bool, typer.Option("--tied", help="Only votes with a tie.")]
Csv = Annotated[bool, typer.Option("--csv", help="Write CSV to stdout, all lines.")]
Limit = Annotated[
    int, typer.Option("--limit", metavar="LINES", min=1, help="Most lines of the table.")
]
Population = Annotated[
    int | None, typer.Option("--n", metavar="N", min=1, help="Only this population size.")
]
EnsembleSize = Annotated[
    int | None, typer.Option("--k", metavar="K", min=1, help="Only this ensemble size.")
]
TABLE_LINES = 50


def candidates(
    run: Run,
    *,
    state: State = None,
    limit: Limit = TABLE_LINES,
    server: RunServer = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Print the candidates of a finished run, best first.

    `reward` is the mean over the selection rows, and `selection tokens` counts what was generated
    for them. `gain` is the selection reward less that of the base. `held-out` is the metric of an
    expert on the held-out rows; it chooses nothing. Candidates that were stopped early show the
    interval that their reward lies in, and have a rank only if it is certain.
    """
    from modnorm.cli.candidates_work import print_candidates
    from modnorm.cli.records_output import Listed

    output = _output(as_json=as_json, as_csv=as_csv)
    print_candidates(Listed(run, server, limit, output), state)


def answers(
    run: Run,
    *,
    candidate: Candidate = None,
    split: Split = None,
    row: Row = None,
    wrong: Wrong = False,
    limit: Limit = TABLE_LINES,
    server: RunServer = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Print the answers of a finished run, with their judgement.

    A single answer is printed whole, with its prompt and its completion.
    """
    from modnorm.analysis.answers import AnswerFilter
    from modnorm.cli.answers_work import print_answers
    from modnorm.cli.records_output import Listed

    wanted = AnswerFilter(candidate=candidate, split=split, row=row, wrong=wrong)
    output = _output(as_json=as_json, as_csv=as_csv)
    print_answers(Listed(run, server, limit, output), wanted)


def votes(
    run: Run,
    *,
    row: Row = None,
    n: Population = None,
    k: EnsembleSize = None,
    wrong: WrongVotes = False,
    tied: Tied = False,
    limit: Limit = TABLE_LINES,
    server: RunServer = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Print the votes of a finished run: counts, ties and every expert's vote.

    A single vote is printed whole, with its prompt and with what each expert answered. `tie` names
    the number of tied answers and the expert that broke the tie: the best-ranked of those that
    gave one of them.
    """
    from modnorm.analysis.votes import VoteFilter
    from modnorm.cli.records_output import Listed
    from modnorm.cli.votes_work import print_votes

    wanted = VoteFilter(row=row, population=n, ensemble_size=k)
    output = _output(as_json=as_json, as_csv=as_csv)
    print_votes(Listed(run, server, limit, output), wanted, wrong=wrong, tied=tied)


def _output(*, as_json: bool, as_csv: bool) -> "Output":
    if as_json and as_csv:
        raise InvalidInputError(
            "--json and --csv exclude each other", field="csv", remedy="give only one of them"
        )
    return "json" if as_json else "csv" if as_csv else "table"
