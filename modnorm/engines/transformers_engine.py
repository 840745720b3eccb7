"""The engine on Hugging Face transformers, for any CPU and any GPU that torch supports."""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial

import torch
import transformers

from modnorm.checkpoint.families import Layout, PhysicalTensor
from modnorm.checkpoint.pretrained import (
    arithmetic_dtype,
    best_device,
    limit_threads,
    load_pretrained,
)
from modnorm.checkpoint.prompts import PromptEncoder, check_fit
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, dtype_name, require_same_architecture
from modnorm.engines.candidate_engine import CandidateEngine
from modnorm.engines.causal import ATTENTION, CausalModel, bytes_per_token
from modnorm.engines.decoding import Decoder
from modnorm.engines.protocol import Completion, Finish, GenerationLimits, engine_failures, no_poll
from modnorm.engines.settings import DEFAULT_SHARE
from modnorm.engines.vllm.memory import weight_bytes
from modnorm.errors import DoesNotFitError, IncompatibleError
from modnorm.noise import Block
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.held_tensor import WeightView


def weight_views(
    layout: Layout, model: torch.nn.Module, dtype: torch.dtype
) -> Mapping[str, tuple[WeightView, ...]]:
    """Map each physical tensor to the parameters that hold its rows.

    transformers stores row blocks of the fused tensors as parameters (paper, app. A.1). A tied
    head shares the embedding's storage, so the embedding covers it.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    views = {tensor.name: _views(tensor, parameters, dtype) for tensor in layout}
    _require_exact_cover(views, parameters)
    return views


def _views(
    tensor: PhysicalTensor, parameters: Mapping[str, torch.nn.Parameter], dtype: torch.dtype
) -> tuple[WeightView, ...]:
    views = []
    start = 0
    for part in tensor.parts:
        storage = parameters.get(part.name)
        shape = (part.rows, *tensor.shape[1:])
        if storage is None:
            raise IncompatibleError(f"the engine has no parameter {part.name}")
        if storage.shape != shape or storage.dtype != dtype:
            raise IncompatibleError(
                f"{part.name} is {storage.dtype} {tuple(storage.shape)} in the engine, "
                f"{dtype} {shape} in the layout"
            )
        views.append(WeightView(storage.data, Block((start, start + part.rows), None)))
        start += part.rows
    return tuple(views)


def _require_exact_cover(
    views: Mapping[str, tuple[WeightView, ...]], parameters: Mapping[str, torch.nn.Parameter]
) -> None:
    """Require each storage to be covered once; one storage under two names is one tensor."""
    covered = [view.storage.data_ptr() for parts in views.values() for view in parts]
    if len(set(covered)) != len(covered):
        raise IncompatibleError("two physical tensors share one parameter of the engine")
    surplus = sorted(name for name, value in parameters.items() if value.data_ptr() not in covered)
    if surplus:
        raise IncompatibleError(f"{surplus[0]} belongs to no physical tensor")


MAX_ROWS = 256
"""Sequences decoded at once."""
CPU_CACHE_BYTES = 4 * 2**30
GPU_CACHE_SHARE = 0.5
"""Share of the GPU memory beyond two copies of the weights. Free memory does not count: the number
of slots, and so the rounding, must not depend on other processes."""


class TransformersEngine(CandidateEngine):
    """One model in the dtype of its arithmetic, and a pristine copy in the checkpoint's dtype."""

    def __init__(self, checkpoint: Checkpoint, *, gpu_share: float = DEFAULT_SHARE) -> None:
        super().__init__()
        stored = CheckpointWeights(checkpoint)
        self._checkpoint = checkpoint
        self._encoder = PromptEncoder(checkpoint)
        self.layout, self._dtype = stored.layout, stored.dtype
        device = best_device()
        arithmetic = arithmetic_dtype(stored.dtype, device)
        copies = sum(weight_bytes(self.layout, dtype, 1) for dtype in (arithmetic, stored.dtype))
        cache = _cache_bytes(copies, device, gpu_share)
        limit_threads(weight_bytes(self.layout, arithmetic, 1))
        with engine_failures(f"loading {checkpoint.name}"):
            model = load_pretrained(checkpoint, dtype=arithmetic, attention=ATTENTION)
            model.eval().requires_grad_(requires_grad=False)
            torch.nn.Module.to(model, device)
        with engine_failures(f"copying the weights of {checkpoint.name}"):
            self._weights: CandidateWeights = CandidateWeights(
                self.layout,
                weight_views(self.layout, model, arithmetic),
                model_digest=checkpoint.digest,
                dtype=stored.dtype,
                origin=partial(stored.read_unchanged, checkpoint.digest),
            )
        self._model = CausalModel(model)
        self._cache_tokens = cache // bytes_per_token(model.config, arithmetic)
        self._requests = 0
        """Requests that run."""

    @property
    def environment(self) -> Mapping[str, str]:
        gpu = self._model.device.type == "cuda"
        threads = {} if gpu else {"threads": str(torch.get_num_threads())}
        return {
            "engine": "transformers",
            "transformers": transformers.__version__,
            "torch": str(torch.__version__),
            "device": torch.cuda.get_device_name(self._model.device) if gpu else "cpu",
            **threads,
            "arithmetic": dtype_name(self._model.dtype),
            "mode": "fast",
        }

    @property
    def _is_answering(self) -> bool:
        return self._requests > 0

    def replace_model(self, checkpoint: Checkpoint) -> None:
        self._require_unused()
        stored = require_same_architecture(self._checkpoint, self._dtype, checkpoint)
        with engine_failures(f"reading the weights of {checkpoint.name}"):
            self._weights.replace_model(
                checkpoint.digest, partial(stored.read_unchanged, checkpoint.digest)
            )
        self._checkpoint, self._encoder = checkpoint, PromptEncoder(checkpoint)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        limits: GenerationLimits,
        *,
        poll: Callable[[], None] | None = None,
    ) -> Generator[Completion]:
        check_fit(prompts, limits.max_tokens, self._checkpoint)
        return self._generate(prompts, limits, poll or no_poll)

    def _generate(
        self, prompts: Sequence[Sequence[int]], limits: GenerationLimits, poll: Callable[[], None]
    ) -> Generator[Completion]:
        if not prompts:
            return
        if self._candidate is None:
            self._require_restored()
        decoder = Decoder(
            self._model,
            prompts,
            max_tokens=limits.max_tokens,
            stop_ids=self._encoder.stop_ids,
            max_rows=MAX_ROWS,
            max_cache_tokens=self._cache_tokens,
            sampling=limits.sampling,
        )
        self._requests += 1
        try:
            for sequence in decoder.run(poll):
                yield Completion(
                    index=sequence.index,
                    text=self._encoder.answer(sequence.generated),
                    tokens=len(sequence.generated),
                    finish=sequence.finish or Finish.LENGTH,
                )
        finally:
            self._requests -= 1

    def close(self) -> None:
        on_gpu = self._model.device.type == "cuda"
        del self._weights, self._model
        if on_gpu:
            torch.cuda.empty_cache()


def _cache_bytes(copies: int, device: torch.device, share: float) -> int:
    """Return the bytes for keys and values; the default share counts as a whole GPU."""
    if device.type != "cuda":
        return CPU_CACHE_BYTES
    with engine_failures("reading the GPU's memory size"):
        whole = torch.cuda.get_device_properties(device).total_memory
    total = whole * min(1.0, share / DEFAULT_SHARE)
    if total <= copies:
        raise DoesNotFitError(
            f"two copies of the weights, {copies / 2**30:.1f} GiB, do not fit in "
            f"{total / 2**30:.1f} GiB",
            field="engine",
            remedy="lower the evaluator's MODNORM_ENGINES_PER_GPU, or use a larger GPU",
        )
    return int(GPU_CACHE_SHARE * (total - copies))
