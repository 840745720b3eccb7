"""The tables. Times are seconds since the epoch; blobs are made by `services.aggregator.codec`."""

from enum import StrEnum
from typing import ClassVar

from sqlalchemy import (
    BigInteger,
    Dialect,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    UniqueConstraint,
    false,
)
from sqlalchemy import Text as SqlText
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel

from modnorm.wire.tokens import DEFAULT_TENANT
from services.aggregator.states import ArtifactKind, ExperimentState, JobState, Split

_FROM_ZERO = {"server_default": "0"}
_FROM_FALSE = {"server_default": false()}


class Text(TypeDecorator[str]):
    """Text of any length; NUL, which Postgres cannot store, becomes the replacement character."""

    impl = SqlText
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        """Make a text storable."""
        return value if value is None else value.replace("\0", "\ufffd")


class _EnumText(TypeDecorator[StrEnum]):
    """A member of an enumeration, as text."""

    impl = SqlText
    cache_ok = True
    kind: ClassVar[type[StrEnum]]

    def process_bind_param(self, value: StrEnum | None, _dialect: Dialect) -> str | None:
        """Return the plain text."""
        return value if value is None else str(value)

    def process_result_value(self, value: str | None, _dialect: Dialect) -> StrEnum | None:
        """Return the member."""
        return value if value is None else self.kind(value)


class _ExperimentStateText(_EnumText):
    cache_ok = True
    kind = ExperimentState


class _JobStateText(_EnumText):
    cache_ok = True
    kind = JobState


class _SplitText(_EnumText):
    cache_ok = True
    kind = Split


class _ArtifactKindText(_EnumText):
    cache_ok = True
    kind = ArtifactKind


class Artifact(SQLModel, table=True):
    """What results depend on, by content: rows (JSON lines), profiles, scale maps."""

    __tablename__ = "artifacts"

    digest: str = Field(primary_key=True, sa_type=Text)
    kind: ArtifactKind = Field(sa_type=_ArtifactKindText)
    content: bytes = Field(sa_type=LargeBinary)


class Experiment(SQLModel, table=True):
    """One experiment. Its row is locked by whoever changes its state or ends one of its jobs."""

    __tablename__ = "experiments"
    __table_args__ = (
        UniqueConstraint("request_key", name="uq_experiments_request_id"),
        Index("ix_experiments_tenant", "tenant", "create_time", "id"),
        Index("ix_experiments_created", "create_time", "id"),
        Index("ix_experiments_state", "state"),
    )

    id: str = Field(primary_key=True, sa_type=Text)
    tenant: str = Field(
        default=DEFAULT_TENANT,
        sa_type=Text,
        sa_column_kwargs={"server_default": DEFAULT_TENANT},
    )
    request_id: str = Field(sa_type=Text, sa_column_kwargs={"server_default": ""})
    """As the client wrote it; each tenant has ids of its own."""
    request_key: str = Field(sa_type=Text)
    """Tenant and request id in one."""
    spec_json: str = Field(sa_type=Text)
    spec_digest: str = Field(sa_type=Text)
    state: ExperimentState = Field(default=ExperimentState.PENDING, sa_type=_ExperimentStateText)
    error: str = Field(default="", sa_type=Text)
    create_time: float
    end_time: float | None = None
    model_digest: str = Field(sa_type=Text)
    scorer: str = Field(sa_type=Text)
    max_tokens: int
    needs_profile: bool
    profile_digest: str | None = Field(default=None, sa_type=Text)
    scale_map_digest: str | None = Field(default=None, sa_type=Text)
    selection_digest: str = Field(sa_type=Text)
    heldout_digest: str = Field(sa_type=Text)
    selection_rows: int
    heldout_rows: int
    selection_revision: str | None = Field(default=None, sa_type=Text)
    """Commit of the Hugging Face dataset that the selection rows are of."""
    heldout_revision: str | None = Field(default=None, sa_type=Text)
    examples_done: int = 0
    examples_total: int = 0
    last_cursor: int = Field(default=0, sa_type=BigInteger)
    """Cursor of its last event."""
    jobs_total: int = Field(default=0, sa_column_kwargs=_FROM_ZERO)
    """Jobs of the present phase; counted here, so that no report has to count rows."""
    jobs_done: int = Field(default=0, sa_column_kwargs=_FROM_ZERO)
    jobs_failed: int = Field(default=0, sa_column_kwargs=_FROM_ZERO)
    development_digest: str = Field(
        default="", sa_type=Text, sa_column_kwargs={"server_default": ""}
    )
    """Rows that choose among the states of an iterative run; empty where there are none."""
    development_rows: int = Field(default=0, sa_column_kwargs=_FROM_ZERO)
    generator_digest: str = Field(
        default="", sa_type=Text, sa_column_kwargs={"server_default": ""}
    )
    """What proposes amplitudes; empty where nothing does."""
    updates_done: int = Field(default=0, sa_column_kwargs=_FROM_ZERO)
    """Steps of the lineage of an iterative run."""
    candidates_stopped: int = Field(default=0, sa_column_kwargs=_FROM_ZERO)
    """Candidates whose scoring was stopped early."""


class Candidate(SQLModel, table=True):
    """The descriptor of one candidate; index -1 is the unperturbed base."""

    __tablename__ = "candidates"
    __table_args__ = (ForeignKeyConstraint(["experiment_id"], ["experiments.id"]),)

    experiment_id: str = Field(primary_key=True, sa_type=Text)
    index: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    noise: str = Field(sa_type=Text)
    seed: int = Field(sa_type=BigInteger)
    method: str = Field(sa_type=Text)
    radius: float
    scale_map_digest: str = Field(sa_type=Text)
    coefficients: bytes | None = Field(default=None, sa_type=LargeBinary)
    """Packed float32; None until the first report resolves them."""
    lineage: str = Field(default="", sa_type=Text, sa_column_kwargs={"server_default": ""})
    """Digest of the trained state that it is drawn around; empty for the base model."""
    normaliser: float | None = None
    """What its amplitudes were multiplied with, where a generator proposed them."""


class Update(SQLModel, table=True):
    """One step of the lineage of an iterative run."""

    __tablename__ = "updates"
    __table_args__ = (ForeignKeyConstraint(["experiment_id"], ["experiments.id"]),)

    experiment_id: str = Field(primary_key=True, sa_type=Text)
    index: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    step: str = Field(sa_type=Text)
    """JSON of a `modnorm.perturbation.lineage.Step`."""
    digest: str = Field(sa_type=Text)
    """Digest of the state after it."""


class Job(SQLModel, table=True):
    """One candidate on one split. `token` is the fencing token of its last lease."""

    __tablename__ = "jobs"
    __table_args__ = (
        ForeignKeyConstraint(
            ["experiment_id", "candidate"], ["candidates.experiment_id", "candidates.index"]
        ),
        UniqueConstraint("experiment_id", "split", "candidate", name="uq_jobs_candidate_split"),
        Index("ix_jobs_ranking", "experiment_id", "split", "state", "metric", "candidate"),
        Index("ix_jobs_lease", "state", "lease_deadline"),
    )

    id: str = Field(primary_key=True, sa_type=Text)
    experiment_id: str = Field(sa_type=Text)
    candidate: int
    split: Split = Field(sa_type=_SplitText)
    state: JobState = Field(default=JobState.PENDING, sa_type=_JobStateText)
    attempts: int = 0
    """Attempts that ended, well or badly; a job handed back unharmed does not count."""
    token: int = Field(default=0, sa_type=BigInteger)
    worker: str = Field(default="", sa_type=Text)
    lease_deadline: float | None = None
    answers_done: int = 0
    resting: bool = Field(default=False, sa_column_kwargs=_FROM_FALSE)
    """Whether, when its worker was heard of last, others went first."""
    correct: int = Field(default=0, sa_column_kwargs=_FROM_ZERO)
    """Stored answers whose vote is right."""
    error: str = Field(default="", sa_type=Text)
    metric: float | None = None
    """Mean selection reward, or held-out metric of the candidate alone; None while not known,
    as that of a candidate that was stopped early, or of an expert that left rows out."""
    reward_lower: float | None = None
    """Least mean selection reward that is possible, of a candidate that was stopped early."""
    reward_upper: float | None = None
    """Largest one."""
    skipped: bytes | None = Field(default=None, sa_type=LargeBinary)
    """Rows that its last lease leaves out, packed; None where all are to be answered."""
    tokens: int = Field(default=0, sa_type=BigInteger)
    switch_seconds: float = 0.0
    generate_seconds: float = 0.0
    score_seconds: float = 0.0
    environment: str = Field(default="{}", sa_type=Text)


class AnswerSheet(SQLModel, table=True):
    """All answers of one job, packed."""

    __tablename__ = "answers"
    __table_args__ = (ForeignKeyConstraint(["job_id"], ["jobs.id"]),)

    job_id: str = Field(primary_key=True, sa_type=Text)
    content: bytes = Field(sa_type=LargeBinary)


class Ensemble(SQLModel, table=True):
    """The result of one (N, K)."""

    __tablename__ = "ensembles"
    __table_args__ = (ForeignKeyConstraint(["experiment_id"], ["experiments.id"]),)

    experiment_id: str = Field(primary_key=True, sa_type=Text)
    population: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    ensemble_size: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    experts: str = Field(sa_type=Text)
    """JSON list of candidate indices, best first."""
    metric: float
    correct: int
    rows: int


class Vote(SQLModel, table=True):
    """One voted answer."""

    __tablename__ = "votes"
    __table_args__ = (
        ForeignKeyConstraint(
            ["experiment_id", "population", "ensemble_size"],
            ["ensembles.experiment_id", "ensembles.population", "ensembles.ensemble_size"],
        ),
    )

    experiment_id: str = Field(primary_key=True, sa_type=Text)
    population: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    ensemble_size: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    row: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    answer: str | None = Field(default=None, sa_type=Text)
    correct: bool
    valid: int
    support: int
    correct_support: int
    skipped: int = Field(default=0, sa_column_kwargs=_FROM_ZERO)
    """Experts that left the row out: the counts are without them."""


class Event(SQLModel, table=True):
    """What happened, numbered within its experiment in the order of commits."""

    __tablename__ = "events"
    __table_args__ = (ForeignKeyConstraint(["experiment_id"], ["experiments.id"]),)

    experiment_id: str = Field(primary_key=True, sa_type=Text)
    cursor: int = Field(
        primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False}
    )
    time: float
    message: str = Field(sa_type=Text)
    state: ExperimentState = Field(sa_type=_ExperimentStateText)
    progress: bytes = Field(sa_type=LargeBinary)
    """Serialised `modnorm.v1.Progress`."""
