"""A checkpoint as a transformers model."""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from modnorm.checkpoint.config import flag
from modnorm.checkpoint.families import family_of
from modnorm.checkpoint.files import require_unchanged
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import IncompatibleError

_LOADING = threading.Lock()
"""While it loads, transformers changes its own classes and torch's default dtype for the whole
process: a second thread would load untied weights, and leave both changed."""


def best_device() -> torch.device:
    """Return the GPU when there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def arithmetic_dtype(weights: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the dtype that a model computes in: float32 on a CPU, its weight dtype elsewhere.

    Few CPUs multiply matrices in bfloat16; the others take up to ten times as long as in float32.
    A model in float32 holds each weight exactly, so the weights stay rounded to their own dtype.

    Args:
        weights: Dtype of the weights in the checkpoint.
        device: Where the model computes.
    """
    return torch.float32 if device.type == "cpu" else weights


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype as records name it, `bfloat16` for instance."""
    return str(dtype).removeprefix("torch.")


def load_pretrained(
    checkpoint: Checkpoint, *, dtype: torch.dtype, attention: str
) -> PreTrainedModel:
    """Load a checkpoint from its directory alone: no network, no remote code, no pickles.

    Of a multimodal model only the decoder is loaded, as the causal language model that it is.
    Threads that load at the same time take turns.

    Args:
        checkpoint: The model.
        dtype: Dtype that it computes in; weights of a narrower dtype are widened, exactly.
        attention: Attention implementation by transformers' name.

    Raises:
        IncompatibleError: transformers cannot make anything of the configuration, or finds no
            weights for some of the model's parameters.
        PreconditionError: other files were put in the model's place since it was looked at.
    """
    digest = checkpoint.digest
    with _LOADING, _quiet(), _refusals(checkpoint):
        loaded: object = AutoModelForCausalLM.from_pretrained(
            checkpoint.directory,
            config=_decoder(checkpoint),
            key_mapping=_key_mapping(checkpoint),
            dtype=dtype,
            attn_implementation=attention,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    require_unchanged(checkpoint.directory, digest)
    model, found = cast("tuple[PreTrainedModel, Mapping[str, object]]", loaded)
    if missing := found["missing_keys"]:
        raise IncompatibleError(
            f"transformers finds no weights for {missing}",
            field="model.name",
            remedy="use a version of transformers that this package was tested with",
        )
    return model


def _decoder(checkpoint: Checkpoint) -> PreTrainedConfig:
    config: PreTrainedConfig = AutoConfig.from_pretrained(
        checkpoint.directory, local_files_only=True, trust_remote_code=False
    )
    decoder = config.get_text_config(decoder=True)
    # What a whole model says of its head holds, as in the layout; its decoder may say otherwise.
    decoder.tie_word_embeddings = flag(checkpoint.config, "tie_word_embeddings")
    return decoder


def _key_mapping(checkpoint: Checkpoint) -> dict[str, str] | None:
    """Return the family's prefixes as transformers wants them: patterns and replacements."""
    prefixes = family_of(checkpoint.config).prefixes
    return {f"^{re.escape(prefix)}": name for prefix, name in prefixes.items()} or None


@contextmanager
def _refusals(checkpoint: Checkpoint) -> Iterator[None]:
    """Tell what transformers raises for a configuration, which the next try meets again."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, StrictDataclassError) as error:
        require_unchanged(checkpoint.directory, checkpoint.digest)
        raise IncompatibleError(
            f"transformers {transformers.__version__} cannot load {checkpoint.name}: "
            f"{type(error).__name__}: {error}",
            field="model.name",
            remedy="correct config.json, or use a version of transformers that knows it",
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' loading bar and its report of unused tensors out of callers' displays."""
    logging = transformers.utils.logging
    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()
