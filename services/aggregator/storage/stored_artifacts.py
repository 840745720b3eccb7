"""Storage of artifacts by kind and digest, inside a caller's transaction."""

import json
from dataclasses import dataclass

from sqlmodel import Session

from modnorm.errors import NotFoundError
from modnorm.services.aggregator.storage.codec import pack_text, unpack_text
from modnorm.services.aggregator.storage.dialects import insert_if_absent
from modnorm.services.aggregator.storage.states import ArtifactKind
from modnorm.services.aggregator.storage.tables import Artifact
from modnorm.tasks import Row


@dataclass(frozen=True, slots=True)
class StoredText:
    """A text and its digest."""

    digest: str
    text: str


def keep_artifact(session: Session, kind: ArtifactKind, artifact: StoredText) -> None:
    """Store a text under its digest unless it is stored already."""
    content = pack_text(artifact.text)
    row = {"digest": artifact.digest, "kind": kind, "content": content}
    insert_if_absent(session, Artifact, row)


def load_text(session: Session, kind: ArtifactKind, digest: str) -> str:
    """Return a stored text."""
    artifact = session.get(Artifact, digest)
    if artifact is None or artifact.kind is not kind:
        raise NotFoundError(f"there is no {kind} artifact {digest[:64]!r}", field="digest")
    return unpack_text(artifact.content)


def load_rows(session: Session, digest: str) -> tuple[Row, ...]:
    """Return stored rows in order."""
    text = load_text(session, ArtifactKind.ROWS, digest)
    return tuple(json.loads(line) for line in text.split("\n"))
