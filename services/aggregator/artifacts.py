"""Stored artifacts, by kind and digest, inside a caller's transaction."""

import json

from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session

from modnorm.errors import NotFoundError
from modnorm.tasks import Row
from services.aggregator.codec import pack_text, unpack_text
from services.aggregator.states import ArtifactKind
from services.aggregator.tables import Artifact


def keep_artifact(session: Session, kind: ArtifactKind, digest: str, text: str) -> None:
    """Store a text under its digest, unless it is there, from whomever."""
    on_sqlite = session.get_bind().dialect.name == "sqlite"
    insert = sqlite.insert if on_sqlite else postgresql.insert
    row = insert(Artifact).values(digest=digest, kind=kind, content=pack_text(text))
    session.exec(row.on_conflict_do_nothing())


def load_text(session: Session, kind: ArtifactKind, digest: str) -> str:
    """Return a stored text.

    Raises:
        NotFoundError: nothing of this kind has the digest.
    """
    artifact = session.get(Artifact, digest)
    if artifact is None or artifact.kind is not kind:
        raise NotFoundError(f"there is no {kind} artifact {digest[:64]!r}", field="digest")
    return unpack_text(artifact.content)


def load_rows(session: Session, digest: str) -> tuple[Row, ...]:
    """Return stored rows in order.

    Raises:
        NotFoundError: no rows have the digest.
    """
    text = load_text(session, ArtifactKind.ROWS, digest)
    return tuple(json.loads(line) for line in text.split("\n"))
