"""A checkpoint as a transformers model."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedModel

from modnorm.checkpoint.reference import Checkpoint


def load_pretrained(
    checkpoint: Checkpoint, *, dtype: torch.dtype, attention: str
) -> PreTrainedModel:
    """Load a checkpoint from its directory alone: no network, no remote code, no pickles.

    Args:
        checkpoint: The model.
        dtype: Dtype of its weights.
        attention: Attention implementation by transformers' name.
    """
    with _no_progress_bar():
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            checkpoint.directory,
            dtype=dtype,
            attn_implementation=attention,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    return model


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Keep transformers' loading bar out of the callers' displays."""
    shown = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers.utils.logging.enable_progress_bar()
