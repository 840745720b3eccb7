"""`modnorm token`: the tokens of a lab, in a file that all its services read."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.cli.console import emit_json, say, stdout, table
from modnorm.cli.options import Json
from modnorm.errors import InvalidInputError
from modnorm.wire.tokens import DEFAULT_TENANT, Role

if TYPE_CHECKING:
    from modnorm.wire.tokens import AcceptedToken

Name = Annotated[str, typer.Argument(metavar="NAME", help="Public name of the token.")]
TokenFile = Annotated[
    Path,
    typer.Option(
        "--file",
        metavar="FILE",
        envvar="MODNORM_ACCEPTED_TOKENS",
        help="File of accepted tokens, which services read again when it changes.",
    ),
]
Roles = Annotated[
    list[Role],
    typer.Option("--role", metavar="|".join(Role), help="Role of the token; repeatable."),
]
Tenant = Annotated[str, typer.Option(metavar="NAME", help="Tenant whose experiments it may use.")]
Days = Annotated[
    float | None, typer.Option(metavar="DAYS", help="Days until it expires [default: never].")
]


def create(
    name: Name,
    *,
    file: TokenFile,
    roles: Roles,
    tenant: Tenant = DEFAULT_TENANT,
    days: Days = None,
    as_json: Json = False,
) -> None:
    """Make a token and print it once; the file keeps only its hash."""
    from modnorm.wire.tokens import add_token, make_token

    text, kept = make_token(name, roles, tenant=tenant, expires=_in(days))
    add_token(file, kept)
    if as_json:
        emit_json({"token": text, **_entry(kept)})
        return
    typer.echo(text)
    say(f"kept as a hash in {file}; the token is not shown again")


def list_tokens(*, file: TokenFile, as_json: Json = False) -> None:
    """List the tokens of a file."""
    from modnorm.wire.tokens import read_tokens

    found = read_tokens(file).tokens
    if as_json:
        emit_json([_entry(token) for token in found])
        return
    headings = ("name", "tenant", "roles", "created", "expires", "state")
    stdout().print(table(headings, map(_row, found)))


def revoke(name: Name, *, file: TokenFile, as_json: Json = False) -> None:
    """Revoke a token; services refuse it within a second."""
    from modnorm.wire.tokens import revoke_token

    revoke_token(file, name)
    if as_json:
        emit_json({"name": name, "state": "revoked"})
        return
    say(f"revoked: {name}")


def _in(days: float | None) -> datetime | None:
    if days is None:
        return None
    if not 0 < days <= 36_500:
        raise InvalidInputError("must be greater than 0 and at most 36500", field="days")
    return datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)


def _entry(token: "AcceptedToken") -> dict[str, object]:
    shown = token.model_dump(mode="json", exclude={"sha256"}, exclude_none=True)
    return {**shown, "state": _state(token)}


def _row(token: "AcceptedToken") -> tuple[str, ...]:
    roles = ",".join(token.roles)
    expires = "never" if token.expires is None else f"{token.expires:%Y-%m-%d %H:%M}"
    created = f"{token.created:%Y-%m-%d %H:%M}"
    return token.name, token.tenant, roles, created, expires, _state(token)


def _state(token: "AcceptedToken") -> str:
    if token.revoked:
        return "revoked"
    expired = token.expires is not None and token.expires <= datetime.now(UTC)
    return "expired" if expired else "accepted"


COMMANDS = {"create": create, "list": list_tokens, "revoke": revoke}
