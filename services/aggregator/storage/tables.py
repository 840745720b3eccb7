"""The tables, and the enumerations in them.

Times are in seconds since the epoch.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache

from sqlalchemy import (
    BigInteger,
    Dialect,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    UniqueConstraint,
)
from sqlalchemy import Enum as SqlEnum
from sqlalchemy import Text as SqlText
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel

from modnorm.analysis.run_data import EnsembleRow
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.answers import BASE_INDEX
from modnorm.spec import ExperimentSpec
from modnorm.tasks import Task, get_stored_task
from modnorm.wire.tokens import DEFAULT_TENANT

NO_AUTOINCREMENT = {"autoincrement": False}
"""Option of a column of numbers in a primary key, which the application sets."""


class Text(TypeDecorator[str]):
    """Text of any length. NUL, which Postgres cannot store, becomes the replacement character."""

    impl = SqlText
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        """Return the text without NUL characters."""
        return value if value is None else value.replace("\0", "\ufffd")


class ExperimentState(StrEnum):
    """State of an experiment; the last three are final."""

    PENDING = "PENDING"
    CALIBRATING = "CALIBRATING"
    SAMPLING = "SAMPLING"
    SELECTING = "SELECTING"
    VOTING = "VOTING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


UNSUCCESSFUL = frozenset({ExperimentState.FAILED, ExperimentState.CANCELLED})
TERMINAL = UNSUCCESSFUL | {ExperimentState.SUCCEEDED}
IN_SETUP = frozenset(
    {ExperimentState.PENDING, ExperimentState.CALIBRATING, ExperimentState.SAMPLING}
)
"""States before the selection, which the conductor ends. Reports end the other states."""


class JobState(StrEnum):
    PENDING = "pending"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = frozenset({JobState.PENDING, JobState.LEASED})
"""States of jobs that have not ended."""


class Split(StrEnum):
    """The set of rows that a job answers."""

    SELECTION = "selection"
    HELDOUT = "heldout"
    DEVELOPMENT = "development"
    QUESTIONS = "questions"
    """Questions without right answers."""


class FailureKind(StrEnum):
    """Cause of a failed attempt, as in `modnorm.v1.FailureKind`."""

    INFRASTRUCTURE = "infrastructure"
    CANDIDATE = "candidate"
    FATAL = "fatal"
    RELEASED = "released"


def state_index(updates: int) -> int:
    """Return the candidate index of an iterative run's state, whose first state is the base."""
    return BASE_INDEX - updates


def _text(kind: type[StrEnum]) -> SqlEnum:
    """Return the type of a column that holds members of an enumeration as text."""
    return SqlEnum(
        kind,
        native_enum=False,
        length=16,
        values_callable=lambda members: [str(member) for member in members],
    )


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
    population: int = Field(primary_key=True, sa_column_kwargs=NO_AUTOINCREMENT)
    ensemble_size: int = Field(primary_key=True, sa_column_kwargs=NO_AUTOINCREMENT)
    experts: str = Field(sa_type=Text)
    """JSON list of candidate indices, best first."""
    metric: float
    correct: int
    rows: int

    @property
    def result(self) -> EnsembleRow:
        """The result in the form of a run."""
        columns = self.model_dump(exclude={"experiment_id", "experts"})
        return EnsembleRow(**columns, experts=tuple(json.loads(self.experts)))


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
    population: int = Field(primary_key=True, sa_column_kwargs=NO_AUTOINCREMENT)
    ensemble_size: int = Field(primary_key=True, sa_column_kwargs=NO_AUTOINCREMENT)
    row: int = Field(primary_key=True, sa_column_kwargs=NO_AUTOINCREMENT)
    answer: str | None = Field(default=None, sa_type=Text)
    correct: bool
    valid: int
    support: int
    correct_support: int


@lru_cache(maxsize=64)
def parsed_spec(spec_json: str) -> ExperimentSpec:
    """Return the stored spec of a JSON text, cached since specs never change."""
    return ExperimentSpec.model_validate_json(spec_json)


class Artifact(SQLModel, table=True):
    """An input of results, stored by digest: rows (JSON lines), a profile, a map, a generator."""

    __tablename__ = "artifacts"

    digest: str = Field(primary_key=True, sa_type=Text)
    content: bytes = Field(sa_type=LargeBinary)


class Experiment(SQLModel, table=True):
    """One experiment. Transactions that change its state or end one of its jobs lock it."""

    __tablename__ = "experiments"
    __table_args__ = (
        Index("ix_experiments_tenant", "tenant", "create_time", "id"),
        Index("ix_experiments_created", "create_time", "id"),
        Index("ix_experiments_state", "state"),
    )

    id: str = Field(primary_key=True, sa_type=Text)
    tenant: str = Field(default=DEFAULT_TENANT, sa_type=Text)
    request_id: str = Field(sa_type=Text)
    """The client's request id; unique within a tenant, since both determine the id."""
    spec_json: str = Field(sa_type=Text)
    spec_digest: str = Field(sa_type=Text)
    state: ExperimentState = Field(default=ExperimentState.PENDING, sa_type=_text(ExperimentState))
    error: str = Field(default="", sa_type=Text)
    """Reason of its failure."""
    remedy: str = Field(default="", sa_type=Text)
    """How to fix the cause of the failure, if known."""
    waits_for: str = Field(default="", sa_type=Text)
    """Why it waits, for a service or a fit evaluator. The next event clears it."""
    create_time: float
    end_time: float | None = None
    model_digest: str = Field(sa_type=Text)
    scorer: str = Field(sa_type=Text)
    max_tokens: int
    profile_digest: str | None = Field(default=None, sa_type=Text)
    scale_map_digest: str | None = Field(default=None, sa_type=Text)
    selection_digest: str = Field(sa_type=Text)
    heldout_digest: str = Field(sa_type=Text)
    selection_rows: int
    heldout_rows: int
    selection_revision: str | None = Field(default=None, sa_type=Text)
    """Commit of the Hugging Face dataset with the selection rows."""
    heldout_revision: str | None = Field(default=None, sa_type=Text)
    examples_done: int = 0
    examples_total: int = 0
    last_cursor: int = Field(default=0, sa_type=BigInteger)
    """Cursor of its last event."""
    jobs_total: int = 0
    """Number of jobs of the present phase; the counters spare each report a count of rows."""
    jobs_done: int = 0
    jobs_failed: int = 0
    development_digest: str = Field(default="", sa_type=Text)
    """Digest of the rows that select among the states of an iterative run; empty without."""
    development_rows: int = 0
    generator_digest: str = Field(default="", sa_type=Text)
    """Digest of the generator that proposes amplitudes; empty without."""
    prompts_digest: str = Field(default="", sa_type=Text)
    """Digest of the prompts of the held-out rows; empty if it was not recorded."""
    updates_done: int = 0
    """Number of steps of an iterative run's lineage."""
    experts: str = Field(default="[]", sa_type=Text)
    """JSON list of the experts of a finished run, if the experiment only votes."""

    @property
    def spec(self) -> ExperimentSpec:
        return parsed_spec(self.spec_json)

    @property
    def asked_experts(self) -> tuple[int, ...]:
        """Experts of a finished run, best first, whose votes it asks for; empty for a search."""
        return tuple(json.loads(self.experts))

    @property
    def is_iterative(self) -> bool:
        """Whether the experiment trains one model by updates."""
        return self.spec.iterative is not None

    @property
    def has_open_jobs(self) -> bool:
        """Whether a job of the present phase has not ended."""
        return self.jobs_done + self.jobs_failed < self.jobs_total

    def rows_of(self, split: Split) -> tuple[str, int]:
        """Return digest and number of the rows of a split."""
        match split:
            case Split.SELECTION:
                return self.selection_digest, self.selection_rows
            case Split.HELDOUT | Split.QUESTIONS:
                return self.heldout_digest, self.heldout_rows
            case Split.DEVELOPMENT:
                return self.development_digest, self.development_rows

    def task(self) -> Task:
        """Return the task with the scorer that the experiment was created with."""
        named = self.spec.task
        try:
            return get_stored_task(named.name, scorer=self.scorer, declaration=named.declaration)
        except InvalidInputError as error:
            raise PreconditionError(
                f"the answers are scored by {self.scorer}: {error.message}",
                field=error.field,
                remedy="finish the experiment with the version that it was created with",
            ) from error


class Candidate(SQLModel, table=True):
    """The descriptor of one candidate. Index -1 is the unperturbed base."""

    __tablename__ = "candidates"
    __table_args__ = (ForeignKeyConstraint(["experiment_id"], ["experiments.id"]),)

    experiment_id: str = Field(primary_key=True, sa_type=Text)
    index: int = Field(primary_key=True, sa_column_kwargs=NO_AUTOINCREMENT)
    noise: str = Field(sa_type=Text)
    seed: int = Field(sa_type=BigInteger)
    method: str = Field(sa_type=Text)
    radius: float
    scale_map_digest: str = Field(sa_type=Text)
    coefficients: bytes | None = Field(default=None, sa_type=LargeBinary)
    """Packed float32 values; None until the first report resolves them."""
    lineage: str = Field(default="", sa_type=Text)
    """Digest of the trained state that the candidate perturbs; empty for the base model."""
    normaliser: float | None = None
    """Normaliser of its amplitudes, if a generator proposed them."""

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor, resolved once the candidate was evaluated."""
        return Descriptor(
            noise=self.noise,
            seed=self.seed,
            method=self.method,
            radius=self.radius,
            scale_map=self.scale_map_digest,
            coefficients=unpack_coefficients(self.coefficients or b"") or None,
            lineage=self.lineage,
        )

    @property
    def needs_proposal(self) -> bool:
        """Whether a generator still has to propose its coefficients."""
        return self.method == "zo_finetuner" and self.coefficients is None


class Update(SQLModel, table=True):
    """One step of the lineage of an iterative run."""

    __tablename__ = "updates"
    __table_args__ = (ForeignKeyConstraint(["experiment_id"], ["experiments.id"]),)

    experiment_id: str = Field(primary_key=True, sa_type=Text)
    index: int = Field(primary_key=True, sa_column_kwargs=NO_AUTOINCREMENT)
    step: str = Field(sa_type=Text)
    """JSON of a `modnorm.perturbation.lineage.Step`."""
    digest: str = Field(sa_type=Text)
    """Digest of the state after the step."""


class Job(SQLModel, table=True):
    """One candidate on one split. `token` is the fencing token of its last lease."""

    __tablename__ = "jobs"
    __table_args__ = (
        ForeignKeyConstraint(
            ["experiment_id", "candidate"], ["candidates.experiment_id", "candidates.index"]
        ),
        UniqueConstraint("experiment_id", "candidate", "split", name="uq_jobs_candidate_split"),
        Index("ix_jobs_ranking", "experiment_id", "split", "state", "metric", "candidate"),
        Index("ix_jobs_next", "state", "experiment_id", "attempts", "place"),
        Index("ix_jobs_content", "content_key"),
    )

    id: str = Field(primary_key=True, sa_type=Text)
    experiment_id: str = Field(sa_type=Text)
    candidate: int
    split: Split = Field(sa_type=_text(Split))
    place: int = 0
    """Its place among the jobs of its batch: they are leased in this order."""
    state: JobState = Field(default=JobState.PENDING, sa_type=_text(JobState))
    attempts: int = 0
    """Number of ended attempts, without released ones."""
    token: int = Field(default=0, sa_type=BigInteger)
    worker: str = Field(default="", sa_type=Text)
    lease_deadline: float | None = None
    answers_done: int = 0
    waits: bool = False
    """Whether the job waited for the engine at the last heartbeat."""
    correct: int = 0
    """Number of stored answers with a correct vote."""
    valid: int = 0
    """Number of stored answers that give a vote."""
    truncated: int = 0
    """Number of stored answers that the completion cap ended."""
    error: str = Field(default="", sa_type=Text)
    """Reason of the last failed attempt."""
    remedy: str = Field(default="", sa_type=Text)
    """How to fix the cause of that failure, if the worker reported it."""
    metric: float | None = None
    """Mean selection reward, or held-out metric of the candidate alone. None while unknown, and of
    answers to questions."""
    tokens: int = Field(default=0, sa_type=BigInteger)
    switch_seconds: float = 0.0
    generate_seconds: float = 0.0
    score_seconds: float = 0.0
    environment: str = Field(default="{}", sa_type=Text)
    content_key: str = Field(default="", sa_type=Text)
    """Digest of all that determines its answers (`experiments.reuse`)."""

    @property
    def title(self) -> str:
        """Name of the job in events."""
        who = "base" if self.candidate == BASE_INDEX else f"candidate {self.candidate}"
        return f"{who}, {self.split}"

    @property
    def is_reused(self) -> bool:
        """Whether its result is that of an earlier job: it was never leased."""
        return self.state is JobState.DONE and not self.token

    @property
    def log_fields(self) -> Mapping[str, str | int]:
        """Fields that identify the job in the log."""
        return {
            "experiment": self.experiment_id,
            "job": self.id,
            "candidate": self.candidate,
            "split": str(self.split),
        }


class Event(SQLModel, table=True):
    """An event of an experiment. Cursors number the events in the order of commits."""

    __tablename__ = "events"
    __table_args__ = (ForeignKeyConstraint(["experiment_id"], ["experiments.id"]),)

    experiment_id: str = Field(primary_key=True, sa_type=Text)
    cursor: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs=NO_AUTOINCREMENT)
    time: float
    message: str = Field(sa_type=Text)
    waits_for: str = Field(default="", sa_type=Text)
    """Why the experiment waits after this event; empty if it does not."""
    state: ExperimentState = Field(sa_type=_text(ExperimentState))
    progress: bytes = Field(sa_type=LargeBinary)
    """Serialised `modnorm.v1.Progress`."""


def pack_coefficients(coefficients: Sequence[float]) -> bytes:
    """Pack float32 values as little-endian bytes, which are equal when the values are."""
    return struct.pack(f"<{len(coefficients)}f", *coefficients)


def unpack_coefficients(blob: bytes) -> tuple[float, ...]:
    """Return the values that `pack_coefficients` packed."""
    return struct.unpack(f"<{len(blob) // 4}f", blob)
