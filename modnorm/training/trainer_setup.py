"""TRL's trainer for a job: model, adapter, encoded examples, arguments and micro-batches."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from datasets import Dataset
from huggingface_hub import constants
from peft import LoraConfig
from safetensors import SafetensorError
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer
from typing_extensions import override

from modnorm.checkpoint.checkpoint_files import positive
from modnorm.checkpoint.pretrained import arithmetic_dtype, load_pretrained
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import InvalidInputError
from modnorm.spec import TrainingSpec
from modnorm.tasks.protocol import Message
from modnorm.training.job import cannot_write

ATTENTION = "sdpa"
RECOMPUTED_BELOW = 8
"""Examples in a pass below which a GPU recomputes activations in the backward pass."""

# TRL reports each trainer to the Hugging Face Hub, unless told not to.
constants.HF_HUB_DISABLE_TELEMETRY = True
IGNORED = -100
"""Label of a token without a loss, in torch's cross-entropy."""
CPU_BYTES = 2 * 2**30
"""Memory for activations on a CPU: fixed, since micro-batches decide how sums are rounded."""
GPU_SHARE = 0.4
"""Share of a GPU's memory for activations. Free memory does not count: another process must not
change the rounding."""
_HIDDEN, _INNER = 24, 8
"""Saved activations of a layer for each token, in units of hidden and of intermediate size."""


@dataclass(frozen=True, slots=True)
class EncodedExamples:
    """Examples as token ids."""

    input_ids: tuple[list[int], ...]
    """Prompt, completion and the token that ends an answer."""
    labels: tuple[list[int], ...]
    """The tokens of `input_ids`, `IGNORED` in the prompt."""
    left_out: int
    """Examples that were too long."""

    @property
    def longest(self) -> int:
        """Tokens of the longest example."""
        return max(map(len, self.input_ids))


Example = tuple[tuple[Message, ...], str]
"""A prompt and the answer that the student learns."""


def read_examples(path: Path) -> tuple[Example, ...]:
    """Return the examples of a harvest's dataset, without their provenance, in file order."""
    # A JSON text may hold U+2028 and U+0085, at which `splitlines` would cut it.
    lines = map(json.loads, path.read_text(encoding="utf-8").removesuffix("\n").split("\n"))
    return tuple(
        (
            tuple(Message(each["role"], each["content"]) for each in line["prompt"]),
            line["completion"][0]["content"],
        )
        for line in lines
    )


def encode_examples(
    examples: Sequence[Example], encoder: PromptEncoder, longest: int
) -> EncodedExamples:
    """Encode examples; leave out those with more than `longest` tokens.

    A truncated answer would teach the student to stop in its middle.
    """
    kept_ids, kept_labels = [], []
    for messages, completion in examples:
        prompt = encoder.encode(messages)
        answer = [*encoder.encode_text(completion), encoder.end_id]
        if len(prompt) + len(answer) <= longest:
            kept_ids.append(prompt + answer)
            kept_labels.append([IGNORED] * len(prompt) + answer)
    if not kept_ids:
        raise InvalidInputError(
            f"none of {len(examples):,} examples has at most {longest:,} tokens",
            field="training.max_length",
            remedy="raise it, or shorten the answers by task.max_tokens",
        )
    return EncodedExamples(tuple(kept_ids), tuple(kept_labels), len(examples) - len(kept_ids))


@dataclass(frozen=True, slots=True)
class TrainerSetup:
    """Everything but the examples that decides how a student is trained."""

    checkpoint: Checkpoint
    """The base."""
    weights: torch.dtype
    """Dtype of the base's weights on disk."""
    training: TrainingSpec
    seed: int
    device: torch.device
    state: Path
    """Folder of the training's checkpoints."""

    @property
    def is_full(self) -> bool:
        """Whether all weights are trained."""
        return self.training.method == "full"

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the base's weights in training.

        Full training keeps float32 weights, since steps are smaller than the steps of bfloat16.
        The frozen weights below an adapter stay bfloat16 on a GPU.
        """
        if self.is_full or self.weights != torch.bfloat16:
            return torch.float32
        return arithmetic_dtype(self.weights, self.device)


def make_trainer(
    setup: TrainerSetup, examples: EncodedExamples, callback: TrainerCallback, micro_batch: int
) -> SFTTrainer:
    """Return a trainer of the base's weights, or of an adapter on them."""
    alpha = setup.training.adapter_alpha
    adapter = LoraConfig(
        r=setup.training.rank,
        # PEFT accepts fractions, and says whole numbers.
        lora_alpha=int(alpha) if alpha.is_integer() else cast("int", alpha),
        lora_dropout=setup.training.dropout,
        bias="none",
        task_type="CAUSAL_LM",
        target_modules="all-linear",  # all but the head
    )
    model = load_pretrained(setup.checkpoint, dtype=setup.dtype, attention=ATTENTION)
    model.config.use_cache = False
    columns = {"input_ids": list(examples.input_ids), "labels": list(examples.labels)}
    trainer = _Trainer(
        model=model,
        args=_arguments(setup, micro_batch),
        train_dataset=Dataset.from_dict(columns),
        processing_class=PromptEncoder(setup.checkpoint).tokenizer,
        callbacks=[callback],
        peft_config=None if setup.is_full else adapter,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


class _Trainer(SFTTrainer):
    """TRL's trainer, which names the folder that it cannot write a checkpoint to."""

    @override
    def _save_checkpoint(self, model: torch.nn.Module, trial: object) -> None:
        try:
            super()._save_checkpoint(model, trial)  # type: ignore[no-untyped-call]
        except torch.OutOfMemoryError:
            raise
        except (OSError, SafetensorError, RuntimeError) as error:  # torch raises the last
            raise cannot_write(f"cannot write {self.args.output_dir}: {error}") from error


def _arguments(setup: TrainerSetup, micro_batch: int) -> SFTConfig:
    training, on_gpu = setup.training, setup.device.type == "cuda"
    if setup.device.index is not None:  # `cuda` alone is the current device
        torch.cuda.set_device(setup.device)
    schedule = "constant_with_warmup" if training.schedule == "constant" else training.schedule
    arguments = SFTConfig(
        output_dir=str(setup.state),
        num_train_epochs=training.epochs,
        learning_rate=training.learning_rate,
        lr_scheduler_type=schedule,
        warmup_steps=training.warmup,
        weight_decay=0.0,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=training.batch_size // micro_batch,
        gradient_checkpointing=on_gpu and micro_batch < RECOMPUTED_BELOW,
        bf16=on_gpu and setup.weights != torch.float32,
        max_length=None,
        seed=setup.seed % 2**32,  # numpy's limit
        use_cpu=not on_gpu,
        dataloader_pin_memory=on_gpu,
        save_strategy="steps",
        save_steps=training.checkpoint_steps,
        save_total_limit=2,
        logging_steps=1,
        logging_nan_inf_filter=False,
        include_num_input_tokens_seen="non_padding",
        report_to="none",
        disable_tqdm=True,
    )
    if on_gpu:
        # One device: several would change the effective batch.
        arguments._n_gpu = 1  # noqa: SLF001
    return arguments


def micro_batch(setup: TrainerSetup, longest: int) -> int:
    """Return the largest divisor of the effective batch whose activations should fit."""
    config = setup.checkpoint.config
    hidden, inner = positive(config, "hidden_size"), positive(config, "intermediate_size")
    token = _HIDDEN * hidden + _INNER * inner
    token *= positive(config, "num_hidden_layers") * setup.dtype.itemsize
    memory = CPU_BYTES
    if setup.device.type == "cuda":
        memory = int(GPU_SHARE * torch.cuda.get_device_properties(setup.device).total_memory)
    return largest_divisor(setup.training.batch_size, memory // (longest * token))


def largest_divisor(batch: int, most: int) -> int:
    """Return the largest divisor of the effective batch up to a size; 1 if that is below 1."""
    return max(size for size in range(1, max(1, min(batch, most)) + 1) if batch % size == 0)
