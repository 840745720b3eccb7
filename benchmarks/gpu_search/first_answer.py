"""Start of an engine, and the first answer of a candidate."""

from benchmarks.gpu_search.candidates import descriptor_of, scale_map_of
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.engines.protocol import GenerationLimits
from modnorm.engines.vllm.engine import VllmEngine


def load(model: str) -> VllmEngine:
    """Start the engine."""
    return VllmEngine(resolve_checkpoint(model))


def first_answer(engine: VllmEngine, model: str) -> None:
    """Become a candidate and generate one token."""
    scale_map = scale_map_of(resolve_checkpoint(model))
    with engine.candidate(descriptor_of(scale_map, 1), scale_map):
        list(engine.generate([[5, 6, 7]], GenerationLimits(1)))
