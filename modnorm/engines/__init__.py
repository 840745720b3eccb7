"""Inference engines behind one protocol. An engine's library is imported when it is loaded."""

from importlib.util import find_spec

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines.protocol import Completion, Engine, Finish, GenerationLimits
from modnorm.engines.settings import EngineSettings, Numerics
from modnorm.engines.vllm.numerics import choose_numerics
from modnorm.errors import IncompatibleError, InvalidInputError
from modnorm.hints import one_of

__all__ = [
    "Completion",
    "Engine",
    "EngineSettings",
    "Finish",
    "GenerationLimits",
    "Numerics",
    "engine_names",
    "load_engine",
]

_VLLM = "vllm"


def engine_names() -> tuple[str, ...]:
    """Return the names of the engines of this installation, `auto` first."""
    installed = (_VLLM,) if find_spec(_VLLM) else ()
    return ("auto", "transformers", *installed)


def load_engine(
    name: str, checkpoint: Checkpoint, settings: EngineSettings | None = None
) -> Engine:
    """Load a model into an engine.

    Args:
        name: Engine by name; `auto` is vLLM if it is installed and there is a GPU.
        checkpoint: The model on disk.
        settings: Settings of the engine; the defaults when None.

    Raises:
        InvalidInputError: there is no such engine, or the checkpoint is malformed.
        IncompatibleError: the engine cannot run the model exactly, or not with these settings.
        PreconditionError: this process runs vLLM with other numerics.
        EngineError: the infrastructure failed.
    """
    if name not in engine_names():
        raise InvalidInputError(
            f"there is no engine {name!r}",
            field="engine.name",
            remedy=one_of(name, engine_names()),
        )
    if name == _VLLM or (name == "auto" and _VLLM in engine_names() and _has_gpu()):
        return _load_vllm(checkpoint, settings or EngineSettings())
    settings = settings or EngineSettings()
    _require_default_features(settings)
    from modnorm.engines.transformers_engine import (  # noqa: PLC0415 - loads transformers
        TransformersEngine,
    )

    return TransformersEngine(checkpoint, gpu_share=settings.gpu_memory_utilization)


def _require_default_features(settings: EngineSettings) -> None:
    """Refuse settings that the transformers engine would silently ignore."""
    requested = {
        "numerics": settings.numerics is not Numerics.FAST,
        "tensor_parallel_size": settings.tensor_parallel_size > 1,
    }
    for field in (field for field, is_requested in requested.items() if is_requested):
        raise IncompatibleError(
            f"the transformers engine has no {field}, and there is no vLLM with a GPU here",
            field=f"engine.{field}",
            remedy="remove it, or run evaluators with vLLM on GPUs",
        )


def _load_vllm(checkpoint: Checkpoint, settings: EngineSettings) -> Engine:
    choose_numerics(settings.numerics)
    try:
        from modnorm.engines.vllm.engine import VllmEngine  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise IncompatibleError(
            f"vLLM is installed but cannot be imported: {error}",
            field="engine.name",
            remedy="fix the installation, or name the transformers engine",
        ) from error
    return VllmEngine(checkpoint, settings)


def _has_gpu() -> bool:
    import torch  # noqa: PLC0415 - slow to import, not needed for names

    return torch.cuda.is_available()
