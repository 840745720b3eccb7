"""Training of a student by TRL's `SFTTrainer`, resumable and on one device."""

import gc
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, cast

import torch
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from trl.trainer.sft_trainer import SFTTrainer

from modnorm.checkpoint.checkpoint_files import file_digest
from modnorm.checkpoint.pretrained import best_device
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, dtype_name
from modnorm.errors import DoesNotFitError
from modnorm.files import encode_json, write_file
from modnorm.training.callbacks import COMPLETE, JobCallback, whole_checkpoints
from modnorm.training.encoding import EncodedExamples, encode_examples
from modnorm.training.examples import read_examples
from modnorm.training.job import (
    ADAPTER,
    IDENTITY,
    OUTCOME,
    STATE,
    STUDENT,
    StepLoss,
    TrainedStudent,
    TrainingJob,
)
from modnorm.training.memory import activation_bytes, halved, micro_batch
from modnorm.training.observers import IsCancelled, OnProgress, ignore_progress, never
from modnorm.training.student import merged_state, write_student
from modnorm.training.trainer_setup import TrainerSetup, make_trainer

if TYPE_CHECKING:
    from peft import PeftModel

NOTE = "training.json"
"""File of a student that names its base, its dataset and its settings."""
_LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate")


def train(
    job: TrainingJob,
    *,
    on_progress: OnProgress = ignore_progress,
    is_cancelled: IsCancelled = never,
) -> TrainedStudent:
    """Train the student of a job, or go on where an earlier call in its directory stopped.

    The outcome of a finished job is returned as it is. On a CPU an interrupted training ends in
    the same bytes as an uninterrupted one. Uses the global random state of torch.

    Args:
        job: Base, dataset, settings and directory.
        on_progress: Called after every step.
        is_cancelled: Asked after every micro-batch.

    Raises:
        InvalidInputError: the base, the dataset or a setting cannot be used.
        CancelledError: the training was cancelled; its checkpoints stay.
        CandidateError: the training diverged.
        DoesNotFitError: the GPU's memory is too small for one example.
        UnavailableError: the student cannot be written.
    """
    return _Training(job, JobCallback(on_progress, is_cancelled)).run()


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
        examples = self._encode()
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
            size = halved(self._job.training.batch_size, size)
            self._drop_state()

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

    def _encode(self) -> EncodedExamples:
        longest = self._checkpoint.max_position
        if self._job.training.max_length is not None:
            longest = min(longest, self._job.training.max_length)
        examples = read_examples(self._job.dataset)
        return encode_examples(examples, PromptEncoder(self._checkpoint), longest)

    def _micro_batch(self, examples: EncodedExamples) -> int:
        """Return the micro-batch size of the last whole checkpoint, else an estimate that fits."""
        for folder in reversed(whole_checkpoints(self._setup.state)):
            state = TrainerState.load_from_json(str(folder / TRAINER_STATE_NAME))
            return int(state.train_batch_size)
        token_bytes = activation_bytes(self._checkpoint.config, self._setup.dtype)
        batch = self._job.training.batch_size
        return micro_batch(batch, examples.longest, token_bytes, self._setup.device)

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
            losses=_losses(state.log_history),
            micro_batch=size,
            seconds=self._callback.seconds,
            environment=self._environment(),
        )

    def _environment(self) -> Mapping[str, str]:
        device = self._setup.device
        return {
            **{name: version(name) for name in _LIBRARIES},
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            "threads": str(torch.get_num_threads()),
            "weights": dtype_name(self._setup.dtype),
        }

    def _drop_state(self) -> None:
        """Start again with smaller micro-batches, whose sums are rounded otherwise."""
        shutil.rmtree(self._setup.state, ignore_errors=True)
        gc.collect()
        torch.cuda.empty_cache()


def _losses(history: Sequence[Mapping[str, float]]) -> tuple[StepLoss, ...]:
    return tuple(
        StepLoss(step=int(entry["step"]), loss=entry["loss"], learning_rate=entry["learning_rate"])
        for entry in history
        if "loss" in entry
    )
