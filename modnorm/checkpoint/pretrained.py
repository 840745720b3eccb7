"""A checkpoint as a transformers model."""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, cast

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError

from modnorm.checkpoint.checkpoint_files import flag, require_unchanged
from modnorm.checkpoint.families import family_of
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import IncompatibleError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_LOADING = threading.Lock()
"""Held during loading: transformers changes its classes and torch's default dtype for the process.

A second thread would load untied weights and leave both changed.
"""

BYTES_PER_THREAD = 32 * 2**20
"""Weights that keep one thread of a CPU busy. With less, threads wait for each other at every
operation: two for 24 MiB take 1.3 times the processor time of one, and more on busy cores.
"""


def best_device() -> torch.device:
    """Return the GPU if there is one, otherwise the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def arithmetic_dtype(weights: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the dtype that a model computes in: float32 on a CPU, its weight dtype elsewhere.

    Few CPUs multiply matrices in bfloat16; others take up to ten times as long as in float32.
    Float32 represents each weight exactly, so weights stay rounded to their own dtype.
    """
    return torch.float32 if device.type == "cpu" else weights


def load_pretrained(
    checkpoint: Checkpoint, *, dtype: torch.dtype, attention: str
) -> "PreTrainedModel":
    """Load a checkpoint from its directory only: no network, no remote code, no pickles.

    Of a multimodal model only the decoder is loaded, as a causal language model. Only one thread
    loads at a time.
    """
    digest, prefixes = checkpoint.digest, family_of(checkpoint.config).prefixes
    mapping = {f"^{re.escape(prefix)}": name for prefix, name in prefixes.items()}
    with _LOADING, _quiet(), _refusals(checkpoint):
        loaded: object = transformers.AutoModelForCausalLM.from_pretrained(
            checkpoint.directory,
            config=_decoder(checkpoint),
            key_mapping=mapping or None,
            dtype=dtype,
            attn_implementation=attention,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    require_unchanged(checkpoint.directory, digest)
    model, info = cast("tuple[PreTrainedModel, Mapping[str, object]]", loaded)
    if missing := info["missing_keys"]:
        raise IncompatibleError(
            f"transformers finds no weights for {missing}",
            field="model.name",
            remedy="use a version of transformers that this package was tested with",
        )
    return model


def limit_threads(weights: int) -> None:
    """Let torch use as many threads of the CPU as this many bytes of weights keep busy."""
    torch.set_num_threads(min(most_threads(), max(1, weights // BYTES_PER_THREAD)))


@cache
def most_threads() -> int:
    """Return the threads that torch used before the first model."""
    return torch.get_num_threads()


def _decoder(checkpoint: Checkpoint) -> "PreTrainedConfig":
    config: PreTrainedConfig = transformers.AutoConfig.from_pretrained(
        checkpoint.directory, local_files_only=True, trust_remote_code=False
    )
    decoder = config.get_text_config(decoder=True)
    # As in the layout, the whole model decides whether its head is tied, not its decoder.
    decoder.tie_word_embeddings = flag(checkpoint.config, "tie_word_embeddings")
    decoder.return_dict = True  # engines read outputs by name
    return decoder


_REFUSALS = (
    AssertionError,
    AttributeError,
    LookupError,
    StrictDataclassError,
    TypeError,
    ValueError,
)
"""Errors of transformers and torch about a configuration."""


@contextmanager
def _refusals(checkpoint: Checkpoint) -> Iterator[None]:
    """Convert errors about a configuration, which a retry would not fix."""
    try:
        yield
    except _REFUSALS as error:
        require_unchanged(checkpoint.directory, checkpoint.digest)
        raise IncompatibleError(
            f"transformers {transformers.__version__} cannot load {checkpoint.name}: "
            f"{type(error).__name__}: {error}",
            field="model.name",
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Switch off transformers' progress bar and its report of unused tensors."""
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
