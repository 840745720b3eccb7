"""Check and description of a model."""

from collections.abc import Sequence
from pathlib import Path

from modnorm.checkpoint.config import positive
from modnorm.checkpoint.prompts import PromptEncoder, check_fit
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.errors import InvalidInputError
from modnorm.v1 import sampling_pb2
from modnorm.wire.conversions import prompts_from_proto
from services.common.model_resolution import resolve_model


def inspect_model(
    request: sampling_pb2.InspectModelRequest, roots: Sequence[Path] | None
) -> sampling_pb2.InspectModelResponse:
    """Check weights, family and prompts of a model.

    Raises:
        InvalidInputError: the model is unknown, unsupported or incomplete, or a prompt does
            not fit.
    """
    if request.max_tokens < 0:
        raise InvalidInputError(
            f"{request.max_tokens} is negative",
            field="task.max_tokens",
            remedy="pass the completion cap in tokens",
        )
    messages = prompts_from_proto(request.prompts)
    checkpoint = resolve_model(request.model, roots)
    weights = CheckpointWeights(checkpoint)
    encoder = PromptEncoder(checkpoint)
    prompts = [encoder.encode(turns) for turns in messages]
    return sampling_pb2.InspectModelResponse(
        model_digest=checkpoint.digest,
        family=str(checkpoint.config["model_type"]),
        num_layers=positive(checkpoint.config, "num_hidden_layers"),
        num_tensors=len(weights.layout),
        max_position=checkpoint.max_position,
        longest_prompt=check_fit(prompts, request.max_tokens, checkpoint),
    )
