"""The computation of a calibration request, checked and resolved."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from modnorm.calibration.calibrate import (
    VERSION,
    calibrate,
    calibration_precision,
    calibration_prompts,
)
from modnorm.checkpoint.pretrained import best_device
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import InvalidInputError
from modnorm.files import json_digest
from modnorm.services.common.model_resolution import resolve_model
from modnorm.spec import CalibrationSpec
from modnorm.v1 import calibration_pb2
from modnorm.wire.conversions import calibration_from_proto, prompts_from_proto


@dataclass(frozen=True)
class CalibrationWork:
    """One calibration, whose key determines its profile."""

    checkpoint: Checkpoint
    prompts: list[list[int]]
    """Token ids of the measured prompts."""
    settings: CalibrationSpec
    task: str

    @cached_property
    def key(self) -> str:
        """SHA-256 of all inputs of the profile."""
        return json_digest(
            {
                "version": VERSION,
                "precision": calibration_precision(self.checkpoint, best_device()),
                "model": self.checkpoint.digest,
                "settings": self.settings.model_dump(mode="json"),
                "prompts": self.prompts,
                "task": self.task,
            }
        )

    @property
    def total(self) -> int:
        """Number of prompts."""
        return len(self.prompts)

    def compute(self, report: Callable[[int, int], None]) -> str:
        """Return the profile as canonical JSON."""
        profile = calibrate(
            self.checkpoint, self.prompts, self.settings, task=self.task, on_progress=report
        )
        return profile.to_json()


def make_calibration(
    request: calibration_pb2.CalibrateRequest, roots: Sequence[Path] | None
) -> CalibrationWork:
    """Resolve the model and encode the prompts.

    Raises:
        InvalidInputError: there are no prompts, a prompt or setting is invalid, or the model is
            unknown.
        PreconditionError: the model has another digest.
    """
    settings = calibration_from_proto(request.settings)
    messages = prompts_from_proto(request.prompts)
    if not messages:
        raise InvalidInputError(
            "there are no prompts", field="prompts", remedy="give the prompts of the task"
        )
    if not request.task:
        raise InvalidInputError("the task has no name", field="task", remedy="name the task")
    checkpoint = resolve_model(request.model, roots, digest=request.model_digest)
    encoder = PromptEncoder(checkpoint)
    encoded = [encoder.encode(turns) for turns in messages[: settings.examples]]
    return CalibrationWork(
        checkpoint, calibration_prompts(encoded, settings), settings, request.task
    )
