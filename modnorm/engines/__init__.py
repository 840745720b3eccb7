"""Inference engines behind one small protocol; an engine's library is imported with the engine."""

from importlib.util import find_spec

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines.protocol import Completion, Engine, Finish, GenerationLimits
from modnorm.engines.settings import EngineSettings, Numerics
from modnorm.engines.vllm.numerics import choose_numerics
from modnorm.errors import IncompatibleError, InvalidInputError

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
        name: Engine by name; `auto` is vLLM where it is installed and there is a GPU.
        checkpoint: The model on disk.
        settings: What the vLLM engine is told besides; defaults where absent.

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
            remedy=f"one of {', '.join(engine_names())}",
        )
    if name == _VLLM or (name == "auto" and _VLLM in engine_names() and _has_gpu()):
        return _load_vllm(checkpoint, settings or EngineSettings())
    settings = settings or EngineSettings()
    _require_plain(settings)
    from modnorm.engines.transformers_engine import (  # noqa: PLC0415 - loads transformers
        TransformersEngine,
    )

    return TransformersEngine(checkpoint, gpu_share=settings.gpu_memory_utilization)


def _require_plain(settings: EngineSettings) -> None:
    """Refuse what would silently be something else with the transformers engine."""
    asked = {
        "numerics": settings.numerics is not Numerics.FAST,
        "tensor_parallel_size": settings.tensor_parallel_size > 1,
    }
    for field in (field for field, is_asked in asked.items() if is_asked):
        raise IncompatibleError(
            f"the transformers engine has no {field}, and there is no vLLM with a GPU here",
            field=f"engine.{field}",
            remedy="leave it out, or run evaluators with vLLM on GPUs",
        )


def _load_vllm(checkpoint: Checkpoint, settings: EngineSettings) -> Engine:
    choose_numerics(settings.numerics)
    try:
        from modnorm.engines.vllm.engine import VllmEngine  # noqa: PLC0415 - need not be there
    except ImportError as error:
        raise IncompatibleError(
            f"vLLM is installed, but does not load: {error}",
            field="engine.name",
            remedy="mend the installation, or name the transformers engine",
        ) from error
    return VllmEngine(checkpoint, settings)


def _has_gpu() -> bool:
    import torch  # noqa: PLC0415 - names of engines are told without it

    return torch.cuda.is_available()
