"""Jobs keep how many of their answers are right; of those that are done, it is counted."""

import json
import zlib

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_JOBS = sa.table("jobs", *map(sa.column, ("id", "correct")))
_ANSWERS = sa.table("answers", *map(sa.column, ("job_id", "content")))
_CORRECT = 4
"""Place of the judgement in an answer as it is packed under this schema."""
_AT_A_TIME = 100
_COUNT = (
    sa.update(_JOBS)
    .where(_JOBS.c.id == sa.bindparam("key"))
    .values(correct=sa.bindparam("count", type_=sa.Integer()))
)


def upgrade() -> None:
    """Add the count, and count what is stored."""
    op.add_column("jobs", sa.Column("correct", sa.Integer(), nullable=False, server_default="0"))
    connection = op.get_bind()
    ids = connection.execute(sa.select(_ANSWERS.c.job_id)).scalars().all()
    for start in range(0, len(ids), _AT_A_TIME):
        batch = ids[start : start + _AT_A_TIME]
        sheets = connection.execute(
            sa.select(_ANSWERS.c.job_id, _ANSWERS.c.content).where(_ANSWERS.c.job_id.in_(batch))
        ).all()
        connection.execute(
            _COUNT, [{"key": key, "count": _right(content)} for key, content in sheets]
        )


def _right(content: bytes) -> int:
    return sum(answer[_CORRECT] for answer in json.loads(zlib.decompress(content)))
