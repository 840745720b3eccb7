"""Settings of supervised fine-tuning, by which a student learns an ensemble's answers."""

from typing import Literal, Self

from pydantic import Field, model_validator

from modnorm.spec.running import MAX_MODEL_LEN
from modnorm.spec.section import Float, Int, Section, field_fault
from modnorm.spec_limits import MAX_COUNT, MAX_RANK

MAX_BATCH = 2**20
"""Largest effective batch, in examples."""
_ADAPTER_FIELDS = ("rank", "alpha", "dropout")


class TrainingSpec(Section):
    """Supervised fine-tuning of one student; the defaults are those of iterative RandOpt.

    Source: sunrainyg/RandOpt, `config.py` and `stages/train.py`.
    """

    method: Literal["lora", "full"] = "lora"
    """`lora`: train a low-rank adapter and merge it; `full`: train all weights."""
    rank: Int = Field(default=192, ge=1, le=MAX_RANK)
    """Rank of the LoRA adapter."""
    alpha: Float | None = Field(default=None, gt=0, le=1e6)
    """Scale of the adapter times its rank; by default twice the rank, so 384."""
    dropout: Float = Field(default=0.05, ge=0, lt=1)
    """Share of the adapter's inputs that are set to zero in training."""
    learning_rate: Float = Field(default=1e-4, gt=0, le=1)
    """Peak learning rate of AdamW."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """Course of the learning rate after the warm-up."""
    warmup: Float = Field(default=0.1, ge=0, lt=1)
    """Share of the steps in which the learning rate rises linearly from zero."""
    epochs: Float = Field(default=2.0, gt=0, le=10_000)
    """Passes over the dataset."""
    batch_size: Int = Field(default=1024, ge=1, le=MAX_BATCH)
    """Examples in one step of the optimizer; micro-batches follow from the memory."""
    max_length: Int | None = Field(default=None, ge=2, le=MAX_MODEL_LEN)
    """Longest example in tokens, prompt and completion; longer ones are left out and counted.

    By default the model's longest sequence.
    """
    checkpoint_steps: Int = Field(default=50, ge=1, le=MAX_COUNT)
    """Steps between two checkpoints, from which an interrupted training goes on."""

    @model_validator(mode="after")
    def _adapter_fields_fit(self) -> Self:
        for field in _ADAPTER_FIELDS if self.method == "full" else ():
            if getattr(self, field) != type(self).model_fields[field].default:
                raise field_fault(field, "full training has no adapter; use lora, or remove this")
        return self

    @property
    def adapter_alpha(self) -> float:
        """The scale of the adapter times its rank."""
        return 2.0 * self.rank if self.alpha is None else self.alpha
