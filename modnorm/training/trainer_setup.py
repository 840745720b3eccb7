"""TRL's trainer for a job: model, adapter, dataset and arguments."""

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

from modnorm.checkpoint.pretrained import load_pretrained
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint
from modnorm.spec import TrainingSpec
from modnorm.training.encoding import EncodedExamples
from modnorm.training.job import cannot_write
from modnorm.training.memory import training_dtype

ATTENTION = "sdpa"
RECOMPUTED_BELOW = 8
"""Examples in a pass below which a GPU recomputes activations in the backward pass."""

# TRL reports each trainer to the Hugging Face Hub, unless told not to.
constants.HF_HUB_DISABLE_TELEMETRY = True


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
        """Dtype of the base's weights in training."""
        return training_dtype(self.weights, self.device, full=self.is_full)


def make_trainer(
    setup: TrainerSetup, examples: EncodedExamples, callback: TrainerCallback, micro_batch: int
) -> SFTTrainer:
    """Return a trainer of the base's weights, or of an adapter on them.

    Args:
        setup: Base, settings and device.
        examples: What the student learns.
        callback: Reports progress.
        micro_batch: Examples in one pass, a divisor of the effective batch.
    """
    arguments = _arguments(setup, micro_batch)
    model = load_pretrained(setup.checkpoint, dtype=setup.dtype, attention=ATTENTION)
    model.config.use_cache = False
    columns = {"input_ids": list(examples.input_ids), "labels": list(examples.labels)}
    trainer = _Trainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict(columns),
        processing_class=PromptEncoder(setup.checkpoint).tokenizer,
        callbacks=[callback],
        peft_config=None if setup.is_full else _adapter(setup.training),
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


def _adapter(training: TrainingSpec) -> LoraConfig:
    """Return PEFT's configuration of an adapter on every linear map but the head."""
    alpha = training.adapter_alpha
    return LoraConfig(
        r=training.rank,
        # PEFT accepts fractions, and says whole numbers.
        lora_alpha=int(alpha) if alpha.is_integer() else cast("int", alpha),
        lora_dropout=training.dropout,
        bias="none",
        task_type="CAUSAL_LM",
        target_modules="all-linear",
    )


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
