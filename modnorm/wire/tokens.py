"""Bearer tokens: made once, shown once, kept as SHA-256 in a file that services read.

A token is `modnorm_NAME_SECRET`. The name is public: logs and the file show it. The secret has
256 random bits, so that a plain hash keeps it: there is no dictionary to try against a slow one.
"""

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from modnorm.errors import ConflictError, InvalidInputError, NotFoundError, UnauthenticatedError
from modnorm.files import MAX_YAML_BYTES, read_fault, read_text, replaced_file, write_fault
from modnorm.locks import locked
from modnorm.spec import read_yaml
from modnorm.spec.section import located_fault, plain_words

DEFAULT_TENANT = "default"


class Role(StrEnum):
    """A permission of a token."""

    SUBMIT = "submit"
    """Create and cancel experiments of its tenant, and predict with them."""
    READ = "read"
    """See the experiments of its tenant."""
    OPERATE = "operate"
    """See and cancel the experiments of all tenants."""
    WORKER = "worker"
    """Evaluate: lease jobs, report results, run programs in the sandbox."""
    INTERNAL = "internal"
    """Calls of the aggregator to calibrator, sampler and sandbox."""


_SECRET_BYTES = 32
_NAME = r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?"
_TOKEN = re.compile(rf"modnorm_({_NAME})_([A-Za-z0-9_-]{{43}})")

Name = Annotated[str, Field(pattern=rf"^{_NAME}$")]


class AcceptedToken(BaseModel):
    """A token in the file of a service: everything except the secret."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """Digest of the whole token."""
    roles: Annotated[tuple[Role, ...], Field(min_length=1)]
    tenant: Name = DEFAULT_TENANT
    """Tenant of the experiments that it creates and sees."""
    created: AwareDatetime
    expires: AwareDatetime | None = None
    revoked: bool = False


class TokenTable(BaseModel):
    """All tokens that services accept."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: tuple[AcceptedToken, ...] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [token.name for token in self.tokens]
        if len(set(names)) < len(names):
            raise ValueError("two tokens have the same name")
        return self

    def check(self, text: str, now: datetime) -> AcceptedToken:
        """Return the token that a caller sent."""
        match = _TOKEN.fullmatch(text)
        named = self._by_name.get(match[1]) if match else None
        # Unknown names are compared too, so that timing reveals no name.
        right = hmac.compare_digest(digest(text), named.sha256 if named else "0" * 64)
        if named is None or not right:
            raise _refused("the token is not known here")
        if named.revoked:
            raise _refused(f"the token {named.name!r} was revoked")
        if named.expires is not None and named.expires <= now:
            raise _refused(f"the token {named.name!r} has expired")
        return named

    @cached_property
    def _by_name(self) -> Mapping[str, AcceptedToken]:
        return {token.name: token for token in self.tokens}


def digest(text: str) -> str:
    """Return the SHA-256 of a token."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def make_token(
    name: str,
    roles: Sequence[Role],
    *,
    tenant: str = DEFAULT_TENANT,
    expires: datetime | None = None,
) -> tuple[str, AcceptedToken]:
    """Return a new token, and its entry in the file of services."""
    text = f"modnorm_{name}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    try:
        kept = AcceptedToken(
            name=name,
            sha256=digest(text),
            roles=tuple(roles),
            tenant=tenant,
            created=datetime.now(UTC).replace(microsecond=0),
            expires=expires,
        )
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        field = ".".join(str(step) for step in fault["loc"])
        spelled = "lower-case letters, digits and dashes between them, 40 at most"
        remedy = spelled if field in {"name", "tenant"} else None
        raise InvalidInputError(plain_words(fault), field=field, remedy=remedy) from error
    return text, kept


def read_tokens(path: Path) -> TokenTable:
    try:
        text = read_text(path, most=MAX_YAML_BYTES)
    except (OSError, ValueError) as error:
        raise _bad_file(path, read_fault(error)) from error
    try:
        return TokenTable.model_validate(read_yaml(text) or {})
    except ValidationError as error:
        raise _bad_file(path, located_fault(error)) from error
    except ValueError as error:
        raise _bad_file(path, "it is not YAML, or has a key twice") from error


def write_tokens(path: Path, table: TokenTable) -> None:
    """Replace a file of accepted tokens; it holds no secret, so all may read it."""
    text = yaml.safe_dump(table.model_dump(mode="json", exclude_none=True), sort_keys=False)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    with replaced_file(path) as file:
        os.fchmod(file.fileno(), mode)
        file.write(text.encode())


def add_token(path: Path, token: AcceptedToken) -> None:
    """Add a token to the file, which is created if it is absent."""
    with _changing(path):
        table = read_tokens(path) if path.exists() else TokenTable()
        if any(token.name == other.name for other in table.tokens):
            raise ConflictError(
                f"there is a token {token.name!r} already",
                field="name",
                remedy="use another name: that of a revoked token stays reserved, for the logs",
            )
        write_tokens(path, TokenTable(tokens=(*table.tokens, token)))


def revoke_token(path: Path, name: str) -> None:
    with _changing(path):
        table = read_tokens(path)
        if all(token.name != name for token in table.tokens):
            raise NotFoundError(f"there is no token {name!r} in {path}", field="name")
        changed = tuple(
            token.model_copy(update={"revoked": True}) if token.name == name else token
            for token in table.tokens
        )
        write_tokens(path, TokenTable(tokens=changed))


@contextmanager
def _changing(path: Path) -> Iterator[None]:
    """Lock a file for one process at a time."""
    try:
        with locked(path.with_name(f".{path.name}.lock")):
            yield
    except OSError as error:
        raise write_fault(path, error, "file") from error


def _refused(message: str) -> UnauthenticatedError:
    return UnauthenticatedError(message, remedy="ask the operator of the lab for a new token")


def _bad_file(path: Path, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"{path}: {reason}",
        field="accepted_tokens",
        remedy="make the file with `modnorm token create NAME --role ROLE --file FILE`",
    )
