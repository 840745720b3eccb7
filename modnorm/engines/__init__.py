"""Inference engines behind one small protocol."""

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines.protocol import Completion, Engine, Finish, GenerationLimits
from modnorm.engines.transformers_engine import TransformersEngine
from modnorm.errors import InvalidInputError

__all__ = ["Completion", "Engine", "Finish", "GenerationLimits", "engine_names", "load_engine"]


def engine_names() -> tuple[str, ...]:
    """Return the names of the engines of this installation, `auto` first."""
    return ("auto", "transformers")


def load_engine(name: str, checkpoint: Checkpoint) -> Engine:
    """Load a model into an engine.

    Args:
        name: Engine by name; `auto` is the fastest one that there is.
        checkpoint: The model on disk.

    Raises:
        InvalidInputError: there is no such engine, or the checkpoint is malformed.
        IncompatibleError: the engine cannot run the model exactly.
        EngineError: the infrastructure failed.
    """
    if name not in engine_names():
        raise InvalidInputError(
            f"there is no engine {name!r}",
            field="engine.name",
            remedy=f"one of {', '.join(engine_names())}",
        )
    return TransformersEngine(checkpoint)
