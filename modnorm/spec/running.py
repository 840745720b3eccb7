"""How evaluators run the model, and when to give up."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from modnorm.limits import MAX_COUNT
from modnorm.spec.section import Int, Section, field_fault

MAX_MODEL_LEN, MAX_SEQUENCES, MAX_RANKS = 2**20, 4096, 64
"""Bounds of an engine's settings, beyond those of any model or host of today."""


class EngineSpec(Section):
    """How evaluators run the model."""

    later: ClassVar[frozenset[str]] = frozenset(
        {"max_model_len", "max_num_seqs", "tensor_parallel_size", "numerics"}
    )

    name: Literal["auto", "transformers", "vllm"] = "auto"
    """`auto` is vLLM where the evaluator has it and a GPU, else transformers (docs/engines.md)."""
    max_model_len: Int | None = Field(default=None, ge=2, le=MAX_MODEL_LEN)
    """Longest sequence in tokens, prompt and completion together; the model's own when absent."""
    max_num_seqs: Int | None = Field(default=None, ge=1, le=MAX_SEQUENCES)
    """Sequences that vLLM decodes at once; 256 when absent."""
    tensor_parallel_size: Int = Field(default=1, ge=1, le=MAX_RANKS)
    """GPUs that vLLM spreads one model over."""
    numerics: Literal["fast", "batch_invariant"] = "fast"
    """`batch_invariant`: an answer does not depend on what shares its batch; vLLM on a GPU."""

    @model_validator(mode="after")
    def _is_of_vllm(self) -> Self:
        for field in ("tensor_parallel_size", "numerics"):
            asked = getattr(self, field) != type(self).model_fields[field].default
            if asked and self.name == "transformers":
                raise field_fault(field, "the transformers engine has no such setting; use vllm")
        return self


class FailureSpec(Section):
    """When to try again and when to give up."""

    max_attempts: Int = Field(default=3, ge=1, le=100)
    """Attempts a job gets before it fails for good."""
    max_failed_candidates: Int = Field(default=0, ge=0, le=MAX_COUNT)
    """Failed candidates that the experiment tolerates, in all updates together where it is
    iterative; they are left out of the ranking, or of their update."""
