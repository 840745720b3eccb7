"""`modnorm submit`, `watch`, `show`, `list`, `cancel`, `token` and `doctor`: a lab."""

from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.cli.console import emit_json, say, stdout, table
from modnorm.cli.options import (
    ExperimentId,
    Json,
    Quiet,
    Seed,
    Server,
    SpecFile,
    arg,
    opt,
    read_spec,
    seeded,
    settings,
)
from modnorm.errors import InvalidInputError, UnreachableError
from modnorm.wire.tokens import DEFAULT_TENANT, Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modnorm.client.doctor import Finding
    from modnorm.wire.tokens import AcceptedToken

Name = Annotated[str, arg("NAME", "Public name of the token.")]
TokenFile = Annotated[
    Path,
    opt(
        "--file FILE",
        "File of accepted tokens, which services read again when it changes.",
        envvar="MODNORM_ACCEPTED_TOKENS",
    ),
]


def submit(
    spec_file: SpecFile,
    *,
    server: Server = None,
    request_id: Annotated[
        str | None, typer.Option(help="Name of the submission; the same id finds it again.")
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Start a new experiment even if one of this spec runs."),
    ] = False,
    seed: Seed = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow the experiment to its end.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Submit an experiment to a lab and print its id; with --wait, follow it.

    If an experiment of the same spec is running in the lab, prints the id of that one, unless
    --again or --request-id is used.
    """
    if again and request_id is not None:
        raise InvalidInputError(
            "a request id names one experiment, and --again starts a new one",
            field="again",
            remedy="use one of the two",
        )
    spec = seeded(read_spec(spec_file), seed)
    from modnorm.cli.lab_work import submit_spec

    submit_spec(
        spec,
        server,
        request_id=request_id,
        again=again,
        title=spec_file.stem,
        wait=wait,
        quiet=quiet,
        as_json=as_json,
    )


def watch(
    experiment_id: ExperimentId,
    *,
    server: Server = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Follow an experiment to its end. With --json: one event a line."""
    from modnorm.cli.lab_work import watch_experiment

    watch_experiment(_id(experiment_id), server, quiet=quiet, as_json=as_json)


def show(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Directory of runs, or id of an experiment.")
    ],
    *,
    server: Server = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Directory for results and report.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a run directory or an experiment of a lab.

    Each line is a model or a vote, its metric on the held-out rows and the 95 % Wilson interval
    over these rows. `rank 1 by selection` is the candidate with the highest selection reward.
    `N=12 K=5` is the vote of the best 5 of the first 12 candidates.

    With --out, write the files of a lab's experiment that `run` writes.
    """
    if server is None and out is None and Path(run).is_dir():
        from modnorm.cli.results import show_directory

        show_directory(Path(run), as_json=as_json)
        return
    from modnorm.cli.lab_work import show_stored

    try:
        show_stored(_id(run), server, out, as_json=as_json)
    except UnreachableError as error:
        if server is not None:
            raise
        raise UnreachableError(
            f"there is no directory {run}; as for an experiment, {error.message}",
            field="run",
            remedy=error.remedy,
        ) from error


def list_experiments(*, server: Server = None, as_json: Json = False) -> None:
    """List the experiments of a lab, newest first."""
    from modnorm.cli.lab_work import list_all

    list_all(server, as_json=as_json)


def cancel(experiment_id: ExperimentId, *, server: Server = None, as_json: Json = False) -> None:
    """Ask an experiment to stop."""
    from modnorm.cli.lab_work import stop_experiment

    stop_experiment(_id(experiment_id), server, as_json=as_json)


def _id(text: str) -> str:
    """Return the id of an experiment; a path is a mistake."""
    path = Path(text)
    if "/" in text or path.exists():
        there = "does not exist"
        if path.exists():
            there = "is a directory" if path.is_dir() else "is a file"
        raise InvalidInputError(
            f"{text} {there}",
            field="id",
            remedy="name an id that `modnorm list` shows, or for `modnorm show` a run directory",
        )
    return text


def create_token(
    name: Name,
    *,
    file: TokenFile,
    roles: Annotated[
        list[Role], opt(f"--role {'|'.join(Role)}", "Role of the token; repeatable.")
    ],
    tenant: Annotated[
        str, opt("--tenant NAME", "Tenant whose experiments it may use.")
    ] = DEFAULT_TENANT,
    days: Annotated[
        float | None, opt("--days DAYS", "Days until it expires [default: never].")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a token and print it once; the file keeps only its hash."""
    from modnorm.wire.tokens import add_token, make_token

    expires = None
    if days is not None:
        if not 0 < days <= 36_500:
            raise InvalidInputError("must be greater than 0 and at most 36500", field="days")
        expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
    text, kept = make_token(name, roles, tenant=tenant, expires=expires)
    add_token(file, kept)
    if as_json:
        emit_json({"token": text, **_token_entry(kept)})
        return
    typer.echo(text)
    say(f"kept as a hash in {file}; the token is not shown again")


def list_tokens(*, file: TokenFile, as_json: Json = False) -> None:
    """List the tokens of a file."""
    from modnorm.wire.tokens import read_tokens

    found = read_tokens(file).tokens
    if as_json:
        emit_json([_token_entry(token) for token in found])
        return
    headings = ("name", "tenant", "roles", "created", "expires", "state")
    rows = (
        (
            token.name,
            token.tenant,
            ",".join(token.roles),
            f"{token.created:%Y-%m-%d %H:%M}",
            "never" if token.expires is None else f"{token.expires:%Y-%m-%d %H:%M}",
            _token_state(token),
        )
        for token in found
    )
    stdout().print(table(headings, rows))


def revoke_token(name: Name, *, file: TokenFile, as_json: Json = False) -> None:
    """Revoke a token; services refuse it within a second."""
    from modnorm.wire import tokens

    tokens.revoke_token(file, name)
    if as_json:
        emit_json({"name": name, "state": "revoked"})
        return
    say(f"revoked: {name}")


def _token_entry(token: "AcceptedToken") -> dict[str, object]:
    shown = token.model_dump(mode="json", exclude={"sha256"}, exclude_none=True)
    return {**shown, "state": _token_state(token)}


def _token_state(token: "AcceptedToken") -> str:
    if token.revoked:
        return "revoked"
    expired = token.expires is not None and token.expires <= datetime.now(UTC)
    return "expired" if expired else "accepted"


TOKEN_COMMANDS = {"create": create_token, "list": list_tokens, "revoke": revoke_token}


def doctor(*, server: Server = None, as_json: Json = False) -> None:
    """Check this machine, and a lab if one is named. The exit code is 1 if anything is broken."""
    from modnorm.client.doctor import Verdict

    found = []
    for finding in _findings(server):
        found.append(finding)
        if not as_json:
            stdout().print(
                f"{finding.verdict:7}  {finding.check}: {finding.detail}", soft_wrap=True
            )
            if finding.remedy:
                stdout().print(f"         -> {finding.remedy}", soft_wrap=True)
    counts = Counter(finding.verdict for finding in found)
    if as_json:
        emit_json([asdict(finding) for finding in found])
    else:
        stdout().print(
            f"{counts[Verdict.BROKEN]} broken, {counts[Verdict.WARNING]} warnings", soft_wrap=True
        )
    raise typer.Exit(1 if counts[Verdict.BROKEN] else 0)


def _findings(server: str | None) -> "Iterator[Finding]":
    from modnorm.client.doctor import check_lab, check_machine

    found = settings()
    yield from check_machine(found.cache_dir)
    if server or "server" in found.model_fields_set:
        yield from check_lab(server or found.server, found.credentials)
