"""Training of a student by TRL's `SFTTrainer`, resumable and on one device."""

import gc
import shutil
import time
from collections.abc import Mapping
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from peft import PeftModel
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl.trainer.sft_trainer import SFTTrainer

from modnorm.checkpoint.checkpoint_files import file_digest
from modnorm.checkpoint.pretrained import best_device, load_pretrained
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, dtype_name, weights_sha256
from modnorm.checkpoint.writing import write_checkpoint
from modnorm.errors import CandidateError, DoesNotFitError, UnavailableError
from modnorm.files import encode_json, write_file
from modnorm.prediction.ranked_votes import OnProgress, ignore_progress
from modnorm.training.job import (
    ADAPTER,
    IDENTITY,
    OUTCOME,
    STATE,
    STUDENT,
    StepLoss,
    TrainedStudent,
    TrainingJob,
    cannot_write,
)
from modnorm.training.trainer_setup import (
    ATTENTION,
    EncodedExamples,
    TrainerSetup,
    encode_examples,
    largest_divisor,
    make_trainer,
    micro_batch,
    read_examples,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NOTE = "training.json"
"""File of a student that names its base, its dataset and its settings."""
_LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate")
COMPLETE = "complete"
"""Marks a whole checkpoint, and holds the seconds of the training until then.

A killed process leaves a checkpoint without it.
"""


class JobCallback(TrainerCallback):
    """Reports every step, stops a diverged training, marks whole checkpoints."""

    seconds_before = 0.0
    """Seconds of the training before the checkpoint that goes on."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._started = time.monotonic()
        self._on_progress = on_progress

    @property
    def seconds(self) -> float:
        """Wall time of the training."""
        return self.seconds_before + time.monotonic() - self._started

    def on_log(
        self,
        args: TrainingArguments,  # noqa: ARG002 - the interface's
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002 - the interface's
        logs: dict[str, float] | None = None,
        **_: object,
    ) -> None:
        if logs is None or "loss" not in logs:
            return
        if not isfinite(logs["loss"]):
            raise CandidateError(
                f"the training diverged: its loss is {logs['loss']} in step {state.global_step}",
                field="training.learning_rate",
                remedy="lower it",
            )
        self._on_progress(state.global_step, state.max_steps)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, *_: TrainerControl, **__: object
    ) -> None:
        """Mark the checkpoint as whole."""
        folder = Path(str(args.output_dir), f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
        write_file(folder / COMPLETE, f"{self.seconds:.3f}".encode())


def whole_checkpoints(state: Path) -> list[Path]:
    """Return the whole checkpoints of a training, oldest first."""
    marks = state.glob(f"{PREFIX_CHECKPOINT_DIR}-*/{COMPLETE}")
    return sorted((mark.parent for mark in marks), key=lambda path: int(path.name.split("-")[1]))


def train(job: TrainingJob, on_progress: OnProgress = ignore_progress) -> TrainedStudent:
    """Train the student of a job, or go on where an earlier call in its directory stopped.

    The outcome of a finished job is returned as it is. On a CPU an interrupted training ends in
    the same bytes as an uninterrupted one. Uses the global random state of torch.
    """
    return _Training(job, JobCallback(on_progress)).run()


class _Training:
    """One call of `train`."""

    def __init__(self, job: TrainingJob, callback: JobCallback) -> None:
        self._job, self._callback = job, callback
        self._checkpoint: Checkpoint = resolve_checkpoint(job.model, job.revision)
        self._setup = TrainerSetup(
            self._checkpoint,
            CheckpointWeights(self._checkpoint).dtype,
            job.training,
            job.seed,
            best_device() if job.device is None else torch.device(job.device),
            job.directory / STATE,
        )
        self._dataset_sha256 = file_digest(job.dataset)
        self._identity: bytes = encode_json(
            {
                "base_digest": self._checkpoint.digest,
                "dataset_sha256": self._dataset_sha256,
                "training": job.training.model_dump(mode="json"),
                "seed": job.seed,
            }
        )

    def run(self) -> TrainedStudent:
        finished = self._open_directory()
        if finished is not None:
            return finished
        longest = self._checkpoint.max_position
        if self._job.training.max_length is not None:
            longest = min(longest, self._job.training.max_length)
        encoder = PromptEncoder(self._checkpoint)
        examples = encode_examples(read_examples(self._job.dataset), encoder, longest)
        size = self._micro_batch(examples)
        while True:
            try:
                return self._attempt(examples, size)
            except torch.OutOfMemoryError as error:
                if size == 1:
                    raise DoesNotFitError(
                        f"one example of {examples.longest} tokens does not fit the GPU",
                        field="training.max_length",
                        remedy="lower it, use lora, or a larger GPU",
                    ) from error
            size = largest_divisor(self._job.training.batch_size, size // 2)
            # Smaller micro-batches start again, since their sums are rounded otherwise.
            shutil.rmtree(self._setup.state, ignore_errors=True)
            gc.collect()
            torch.cuda.empty_cache()

    def _open_directory(self) -> TrainedStudent | None:
        """Return the outcome of a finished job; clear a directory of another job."""
        directory = self._job.directory
        directory.mkdir(parents=True, exist_ok=True)
        identity, outcome = directory / IDENTITY, directory / OUTCOME
        if not identity.is_file() or identity.read_bytes() != self._identity:
            outcome.unlink(missing_ok=True)
            for folder in (STATE, STUDENT):
                shutil.rmtree(directory / folder, ignore_errors=True)
            write_file(identity, self._identity)
        if not outcome.is_file():
            return None
        return TrainedStudent.model_validate_json(outcome.read_bytes())

    def _micro_batch(self, examples: EncodedExamples) -> int:
        """Return the micro-batch size of the last whole checkpoint, else an estimate that fits."""
        for folder in reversed(whole_checkpoints(self._setup.state)):
            state = TrainerState.load_from_json(str(folder / TRAINER_STATE_NAME))
            return int(state.train_batch_size)
        return micro_batch(self._setup, examples.longest)

    def _attempt(self, examples: EncodedExamples, size: int) -> TrainedStudent:
        trainer = make_trainer(self._setup, examples, self._callback, size)
        whole = whole_checkpoints(self._setup.state)
        if whole:
            self._callback.seconds_before = float((whole[-1] / COMPLETE).read_text())
        trainer.train(resume_from_checkpoint=str(whole[-1]) if whole else None)
        sha256 = self._write(trainer)
        outcome = self._outcome(trainer.state, examples, size, sha256)
        write_file(self._job.directory / OUTCOME, outcome.model_dump_json().encode())
        shutil.rmtree(self._setup.state, ignore_errors=True)
        return outcome

    def _write(self, trainer: SFTTrainer) -> str:
        """Write the student and return the SHA-256 of its weights."""
        student = self._job.directory / STUDENT
        shutil.rmtree(student, ignore_errors=True)  # of a call that was killed here
        notes = {NOTE: self._identity.decode()}
        if self._setup.is_full:
            state = cast("torch.nn.Module", trainer.model).state_dict()
            return write_student(self._checkpoint, state, student, notes)
        adapter = self._setup.state / ADAPTER
        cast("PeftModel", trainer.model).save_pretrained(str(adapter))
        merged = merged_state(self._checkpoint, adapter)
        sha256 = write_student(self._checkpoint, merged, student, notes)
        adapter.rename(student / ADAPTER)
        return sha256

    def _outcome(
        self, state: TrainerState, examples: EncodedExamples, size: int, sha256: str
    ) -> TrainedStudent:
        device = self._setup.device
        return TrainedStudent(
            digest=resolve_checkpoint(str(self._job.directory / STUDENT)).digest,
            weights_sha256=sha256,
            base_digest=self._checkpoint.digest,
            dataset_sha256=self._dataset_sha256,
            examples=len(examples.input_ids),
            left_out=examples.left_out,
            steps=state.global_step,
            tokens=int(state.num_input_tokens_seen),
            flops=float(state.total_flos),
            losses=tuple(
                StepLoss(
                    step=int(each["step"]), loss=each["loss"], learning_rate=each["learning_rate"]
                )
                for each in state.log_history
                if "loss" in each
            ),
            micro_batch=size,
            seconds=self._callback.seconds,
            environment={
                **{name: version(name) for name in _LIBRARIES},
                "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
                "threads": str(torch.get_num_threads()),
                "weights": dtype_name(self._setup.dtype),
            },
        )


def merged_state(checkpoint: Checkpoint, adapter: Path) -> Mapping[str, torch.Tensor]:
    """Return the base's parameters with an adapter added, in float32 on the CPU.

    The sum is computed apart from the training, so it does not depend on the device.
    """
    base = load_pretrained(checkpoint, dtype=torch.float32, attention=ATTENTION)
    merged: PreTrainedModel = PeftModel.from_pretrained(base, str(adapter)).merge_and_unload()
    return merged.state_dict()


def write_student(
    checkpoint: Checkpoint,
    state: Mapping[str, torch.Tensor],
    directory: Path,
    notes: Mapping[str, str],
) -> str:
    """Write a student in the dtype of its base, with the base's tokenizer and chat template."""
    stored = CheckpointWeights(checkpoint)
    tensors = {}
    for tensor in stored.layout:
        whole = torch.cat([state[part.name].detach().cpu() for part in tensor.parts])
        tensors[tensor.name] = whole.to(stored.dtype)
        if not tensors[tensor.name].isfinite().all():
            raise CandidateError(
                f"the training diverged: {tensor.name} is not finite",
                field="training.learning_rate",
                remedy="lower it",
            )
    try:
        write_checkpoint(stored, tensors, dict(stored.other_tensors()), directory, notes)
    except UnavailableError as error:
        raise cannot_write(error.message) from error
    return weights_sha256(stored.layout, lambda tensor: tensors[tensor.name])
