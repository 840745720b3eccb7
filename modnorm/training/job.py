"""A training job, its progress and its outcome, and the files of its directory."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from modnorm.errors import PreconditionError, UnavailableError
from modnorm.spec import TrainingSpec

_PACKAGES = ("trl", "peft", "datasets", "accelerate")
STUDENT, STATE = "student", "state"
"""Folders of a job's directory: the merged model, and checkpoints of the training."""
ADAPTER = "adapter"
"""Folder of a student's adapter, beside its merged weights."""
IDENTITY, OUTCOME, LOCK = "job.json", "outcome.json", "lock"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TrainingJob(_Record):
    """A base, a dataset and settings that define a student, and where it is written."""

    model: str
    """Bundled name, local directory, or Hugging Face repository of the base."""
    revision: str | None = None
    """Commit of a Hugging Face repository."""
    dataset: Path
    """File of examples, one JSON object a line, in TRL's conversational format."""
    training: TrainingSpec
    seed: int
    """Seed of the adapter, of dropout and of the order of examples."""
    directory: Path
    """The job's directory; a job that is started again there goes on."""
    device: str | None = None
    """Device of torch; by default the first GPU, or else the CPU."""


class StepLoss(_Record):
    step: int
    loss: float
    """Mean loss of the step's completion tokens, in nats."""
    learning_rate: float


class TrainedStudent(_Record):
    digest: str
    """Digest of the student's checkpoint, as of any other model."""
    weights_sha256: str
    """SHA-256 over the student's physical tensors, as engines compute it."""
    base_digest: str
    dataset_sha256: str
    examples: int
    """Examples that were trained on."""
    left_out: int
    """Examples that were longer than the longest sequence."""
    steps: int
    tokens: int
    """Tokens read, prompts included, without padding."""
    flops: float
    """transformers' count: 6 x tokens (padding included) x parameters (without embeddings)."""
    losses: tuple[StepLoss, ...]
    micro_batch: int
    """Examples in one forward pass."""
    seconds: float
    """Wall time, that before an interruption included up to the checkpoint that went on."""
    environment: Mapping[str, str]
    """Libraries and device, on which rounding may depend."""


def require_packages() -> None:
    """Refuse to train without the extra `modnorm[train]`."""
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        raise PreconditionError(
            f"training needs {', '.join(missing)}",
            field="distillation",
            remedy="pip install -e '.[train]' in the checkout",
        )


def cannot_write(reason: str) -> UnavailableError:
    """Return the error for a directory of a job that cannot be written."""
    return UnavailableError(
        reason, field="out", remedy="free disk space, or name another directory with --out"
    )
