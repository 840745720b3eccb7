"""Settings of engines, and limits of failures."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from modnorm.spec.section import Int, Section, added_rule, field_fault
from modnorm.spec_limits import MAX_COUNT

MAX_MODEL_LEN, MAX_SEQUENCES, MAX_RANKS = 2**20, 4096, 64
"""Bounds of an engine's settings, above those of any current model or host."""


class EngineSpec(Section):
    """Settings of the engine that runs the model."""

    added_fields: ClassVar[frozenset[str]] = frozenset(
        {"max_model_len", "max_num_seqs", "tensor_parallel_size", "numerics", "drafts"}
    )

    name: Literal["auto", "transformers", "vllm"] = "auto"
    """`auto`: vLLM if the evaluator has it and a GPU, else transformers (docs/engines.md)."""
    max_model_len: Int | None = Field(default=None, ge=2, le=MAX_MODEL_LEN)
    """Longest sequence in tokens, prompt and completion together; by default the model's."""
    max_num_seqs: Int | None = Field(default=None, ge=1, le=MAX_SEQUENCES)
    """Sequences that vLLM decodes at once; by default 256 to 1,024, by model and GPU memory."""
    tensor_parallel_size: Int = Field(default=1, ge=1, le=MAX_RANKS)
    """GPUs that vLLM uses for one model."""
    numerics: Literal["fast", "batch_invariant"] = "fast"
    """`batch_invariant`: an answer does not depend on its batch; for vLLM on a GPU."""
    drafts: Literal["none", "population"] = "none"
    """`population`: vLLM verifies drafts from other candidates' answers (docs/drafts.md)."""

    @model_validator(mode="after")
    def _is_of_vllm(self) -> Self:
        for field in ("tensor_parallel_size", "numerics", "drafts"):
            changed = getattr(self, field) != type(self).model_fields[field].default
            if changed and self.name == "transformers":
                raise field_fault(field, "the transformers engine has no such setting; use vllm")
        return self

    @added_rule
    def _has_fast_drafts(self) -> None:
        if self.numerics == "batch_invariant" and self.drafts == "population":
            raise field_fault(
                "drafts",
                "rounding then depends on earlier answers, so it needs `numerics: fast`; "
                "or set `none`",
            )


class FailureSpec(Section):
    """Limits of failures."""

    max_attempts: Int = Field(default=3, ge=1, le=100)
    """Attempts of a job before it fails."""
    max_failed_candidates: Int = Field(default=0, ge=0, le=MAX_COUNT)
    """Failed candidates that the experiment tolerates, over all updates of an iterative method.

    They are excluded from the ranking, or from their update.
    """
