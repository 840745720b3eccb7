"""Inference engines behind one protocol. An engine's library is imported when it is loaded."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines.protocol import Completion, Engine, Finish, GenerationLimits, Sampling
from modnorm.engines.settings import Drafts, EngineSettings, Numerics
from modnorm.engines.vllm.numerics import choose_numerics
from modnorm.engines.vllm.worker_context import preload_workers
from modnorm.errors import IncompatibleError, InvalidInputError
from modnorm.hints import one_of

__all__ = [
    "Completion",
    "Drafts",
    "Engine",
    "EngineSettings",
    "Finish",
    "GenerationLimits",
    "Numerics",
    "Sampling",
    "engine_names",
    "import_engine",
    "is_vllm",
    "load_engine",
]

_VLLM = "vllm"


def engine_names() -> tuple[str, ...]:
    """Return the names of the engines of this installation, `auto` first."""
    installed = (_VLLM,) if find_spec(_VLLM) else ()
    return ("auto", "transformers", *installed)


def import_engine(name: str, settings: EngineSettings) -> None:
    """Import the library of an engine, which takes seconds and no memory of a GPU."""
    if is_vllm(name):
        choose_numerics(settings.numerics)
        if settings.has_worker_processes and _has_gpu():
            preload_workers()
        with _imports_of_vllm():
            import modnorm.engines.vllm.engine  # noqa: PLC0415 - an optional package
    else:
        import modnorm.engines.transformers_engine  # noqa: F401, PLC0415 - loads transformers


def load_engine(
    name: str, checkpoint: Checkpoint, settings: EngineSettings | None = None
) -> Engine:
    settings = settings or EngineSettings()
    if is_vllm(name):
        import_engine(_VLLM, settings)
        from modnorm.engines.vllm.engine import VllmEngine  # noqa: PLC0415 - imported by now

        return VllmEngine(checkpoint, settings)
    _require_default_features(settings)
    from modnorm.engines.transformers_engine import TransformersEngine  # noqa: PLC0415 - loads transformers

    return TransformersEngine(checkpoint, gpu_share=settings.gpu_memory_utilization)


def is_vllm(name: str) -> bool:
    """Return whether an engine's name means vLLM on this machine."""
    if name not in engine_names():
        known = name == _VLLM
        raise InvalidInputError(
            "vLLM is not installed" if known else f"there is no engine {name!r}",
            field="engine.name",
            remedy=one_of(name, engine_names()) + ("; or install it: docs/vllm.md" * known),
        )
    return name == _VLLM or (name == "auto" and _VLLM in engine_names() and _has_gpu())


def _require_default_features(settings: EngineSettings) -> None:
    """Refuse settings that the transformers engine would silently ignore."""
    requested = {
        "numerics": settings.numerics is not Numerics.FAST,
        "drafts": settings.drafts is not Drafts.NONE,
        "tensor_parallel_size": settings.tensor_parallel_size > 1,
    }
    for field in (field for field, is_requested in requested.items() if is_requested):
        raise IncompatibleError(
            f"the transformers engine has no {field}, and there is no vLLM with a GPU here",
            field=f"engine.{field}",
            remedy="remove it, or run evaluators with vLLM on GPUs",
        )


@contextmanager
def _imports_of_vllm() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise IncompatibleError(
            f"vLLM is installed but cannot be imported: {error}",
            field="engine.name",
            remedy="fix the installation, or name the transformers engine",
        ) from error


def _has_gpu() -> bool:
    import torch  # noqa: PLC0415 - slow to import, not needed for names

    return torch.cuda.is_available()
