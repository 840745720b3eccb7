"""The engine on vLLM: the fastest where there is a GPU."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate

import torch
import transformers
import vllm
from vllm import SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind

from modnorm.checkpoint.files import require_unchanged
from modnorm.checkpoint.layout import Layout
from modnorm.checkpoint.pretrained import dtype_name
from modnorm.checkpoint.prompts import PromptEncoder, check_fit
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.engines.protocol import Completion, Finish, GenerationLimits
from modnorm.engines.settings import EngineSettings
from modnorm.engines.vllm.blocks import ask_at_block_ends
from modnorm.engines.vllm.numerics import chosen_numerics
from modnorm.engines.vllm.parking import Parked, Parking
from modnorm.engines.vllm.start import (
    Changes,
    Request,
    graph_mode,
    parked_places,
    rendered,
    start_vllm,
    step_tokens,
    steps_under_way,
    vllm_failures,
)
from modnorm.engines.vllm.steps import Steps
from modnorm.engines.vllm.workers import Workers
from modnorm.errors import CandidateError, InvalidInputError, PreconditionError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage

LOOK_EVERY = 64
"""Steps after which logits are looked at for NaN and infinity, as they were twice as many before:
neither the device nor the scheduler waits for a look."""

FIRST_TOKENS = 2048
"""Tokens of the prompts that a request begins with: others are queued while their step runs."""

_NO_CHANGES = Changes()


class VllmEngine:
    """One model in vLLM, in the checkpoint's dtype, and its pristine copy.

    Args:
        checkpoint: The model on disk.
        settings: Memory, length, GPUs.
        changes: What is otherwise, in measurements.

    Raises:
        InvalidInputError: the stored tensors are not what `config.json` says.
        IncompatibleError: vLLM cannot hold the model, or not in a way that candidates can be
            written to.
        PreconditionError: other files were put in the model's place since it was looked at.
        EngineError: the infrastructure failed.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        settings: EngineSettings | None = None,
        *,
        changes: Changes = _NO_CHANGES,
    ) -> None:
        stored = CheckpointWeights(checkpoint)
        self._checkpoint = checkpoint
        self._settings = settings or EngineSettings()
        self._encoder = PromptEncoder(checkpoint)
        self._layout = stored.layout
        self._arithmetic = dtype_name(stored.dtype)
        self._candidate: tuple[Descriptor, ScaleMap] | None = None
        self._requests = 0
        self._waiting: dict[str, int] = {}
        self._unseen = False
        """Whether some logits of the candidate were not looked at."""
        self._engine = start_vllm(checkpoint, stored.layout, stored.dtype, self._settings, changes)
        self._steps = Steps(self._engine)
        if changes.at_block_ends:
            ask_at_block_ends(self._engine)
        try:
            self._parking = self._make_parking()
            digest = checkpoint.digest
            self._workers = Workers(self._engine, stored.layout, stored.dtype, digest)
            require_unchanged(checkpoint.directory, digest)
        except BaseException:
            self.close()
            raise

    @property
    def layout(self) -> Layout:
        """All physical tensors, in canonical order."""
        return self._layout

    @property
    def model_digest(self) -> str:
        """Digest of the checkpoint that it holds."""
        return self._checkpoint.digest

    @property
    def environment(self) -> Mapping[str, str]:
        """Engine, library versions and device: what rounding may depend on, for the record."""
        on_gpu = not current_platform.is_cpu()
        return {
            "engine": "vllm",
            "vllm": str(vllm.__version__),
            "transformers": transformers.__version__,
            "torch": str(torch.__version__),
            "device": str(current_platform.get_device_name()) if on_gpu else "cpu",
            "threads": str(torch.get_num_threads()),
            "arithmetic": self._arithmetic,
            "mode": str(chosen_numerics()),
            "tensor_parallel": str(self._workers.ranks),
            "sequences": str(self._settings.max_num_seqs),
            "step_tokens": str(step_tokens(self._engine)),
            "graphs": graph_mode(self._engine),
            "under_way": str(steps_under_way(self._engine)),
            "norms": "kernels" if self._workers.kernels else "plain",
        }

    def rebase(self, lineage: Lineage | None, *, poll: Callable[[], None] | None = None) -> None:
        """Let the end of a lineage be the base from now on; see `Engine.rebase`."""
        if self._candidate:
            raise PreconditionError("the engine holds a candidate")
        self._require_idle()
        self._workers.rebase(lineage, poll or _go_on)

    def moments(self) -> Sequence[tuple[float, float]]:
        """Mean and unbiased variance of each physical tensor as it is, in canonical order."""
        return self._workers.moments()

    @contextmanager
    def candidate(self, descriptor: Descriptor, scale_map: ScaleMap) -> Iterator[Descriptor]:
        """Hold exactly the candidate inside the context; yield the descriptor, resolved.

        Raises:
            IncompatibleError: the scale map is of another model or layout.
            PreconditionError: another candidate is held, or a request runs.
            EngineError: the infrastructure failed, or something else changed the weights since
                the last candidate.
        """
        mine = self._become(descriptor, scale_map)
        try:
            yield mine[0]
            if self._candidate is mine and self._unseen:
                self._require_sound(self._workers.is_sound())
        finally:
            # Otherwise it was given up while it was parked, and the engine may be another's.
            if self._candidate is mine:
                self._candidate = None
                self._abort(self._waiting)
                self._workers.restore()

    def has_room(self, prompts: Sequence[Sequence[int]], limits: GenerationLimits) -> bool:
        """Whether another candidate could answer such a request beside all that there are."""
        return self._parking.has_room([len(prompt) + limits.max_tokens for prompt in prompts])

    @contextmanager
    def parked(self) -> Iterator[None]:
        """Let other candidates have the engine inside the context; see `Engine.parked`."""
        mine = self._candidate
        if mine is None:
            raise PreconditionError("the engine holds no candidate")
        with vllm_failures("parking a candidate", self._engine):
            requests = self._parking.leave()
        try:
            # With the next weights its logits are forgotten.
            self._require_sound(self._workers.is_sound())
        except BaseException:
            self._parking.come_back(requests)
            raise
        self._candidate = None
        waiting, self._waiting = self._waiting, {}
        self._workers.restore()
        try:
            yield
            self._become(*mine)
        except BaseException:
            self._give_up(requests, waiting)
            raise
        self._candidate, self._waiting, self._unseen = mine, waiting, True
        self._parking.come_back(requests)

    def _become(self, descriptor: Descriptor, scale_map: ScaleMap) -> tuple[Descriptor, ScaleMap]:
        if self._candidate:
            raise PreconditionError("the engine already holds a candidate")
        self._require_idle()
        self._workers.require_base()
        try:
            resolved = self._workers.apply(descriptor, scale_map)
        except BaseException:
            self._workers.restore()
            raise
        self._candidate, self._unseen = (resolved, scale_map), False
        return self._candidate

    def _give_up(self, requests: Parked, waiting: dict[str, int]) -> None:
        """Free what parked requests hold, unless the engine is gone."""
        names = list(waiting)
        waiting.clear()
        if hasattr(self, "_engine"):
            with vllm_failures("giving up parked requests"):
                self._parking.drop(requests)
                self._engine.abort_request(names)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        limits: GenerationLimits,
        *,
        poll: Callable[[], None] | None = None,
    ) -> Generator[Completion]:
        """Yield completions as they finish; see `Engine.generate`."""
        longest = check_fit(prompts, limits.max_tokens, self._checkpoint)
        bound = self._settings.max_model_len
        if prompts and bound is not None and longest + limits.max_tokens > bound:
            raise InvalidInputError(
                f"{longest} prompt tokens and {limits.max_tokens} completion tokens exceed the "
                f"{bound} that the engine was started for",
                field="engine.max_model_len",
                remedy="raise it, or leave it out",
            )
        return self._generate(prompts, limits, poll or _go_on)

    def _generate(
        self,
        prompts: Sequence[Sequence[int]],
        limits: GenerationLimits,
        poll: Callable[[], None],
    ) -> Generator[Completion]:
        if not prompts:
            return
        self._require_idle()
        looks = self._workers.looks()
        waiting: dict[str, int] = {}
        self._waiting, self._unseen = waiting, True
        try:
            self._begin(prompts, limits)
            steps = 0
            while waiting:
                poll()
                with vllm_failures("generation", self._engine):
                    ended = self._steps.take()
                steps += 1
                if len(ended) == len(waiting):
                    self._require_sound(self._workers.is_sound())
                    self._unseen = False
                elif steps % LOOK_EVERY == 0:
                    self._require_sound(next(looks))
                for one in ended:
                    yield self._completion(one, waiting.pop(one.request_id))
        finally:
            self._abort(waiting)

    def _begin(self, prompts: Sequence[Sequence[int]], limits: GenerationLimits) -> None:
        """Submit all prompts: all but the first of them while a step is taken."""
        tokens = accumulate(len(prompt) for prompt in prompts)
        first = 1 + sum(1 for total in tokens if total < FIRST_TOKENS)
        self._submit(prompts[:first], limits)
        if rest := prompts[first:]:
            with vllm_failures("generation", self._engine):
                self._steps.take_one_more()
            self._submit(rest, limits, after=first)

    def _submit(
        self, prompts: Sequence[Sequence[int]], limits: GenerationLimits, *, after: int = 0
    ) -> None:
        with vllm_failures("submitting prompts"):
            for index, prompt in enumerate(rendered(self._engine, prompts), after):
                self._requests += 1
                name = str(self._requests)
                self._waiting[name] = index
                self._engine.add_request(name, prompt, self._sampling(index, limits))

    def _sampling(
        self,
        index: int,  # noqa: ARG002 - for engines that bound each answer by itself
        limits: GenerationLimits,
    ) -> SamplingParams:
        """Return what vLLM is told of one prompt's answer."""
        return SamplingParams(
            temperature=0.0,
            max_tokens=limits.max_tokens,
            stop_token_ids=sorted(self._encoder.stop_ids),
            ignore_eos=True,
            detokenize=False,
            # An answer in progress is nobody's concern, and vLLM would write it out at every step.
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _make_parking(self) -> Parking:
        running = self._settings.max_num_seqs
        places = running + parked_places(self._checkpoint, self._settings)
        return Parking(self._engine, self._steps, running, places)

    def _abort(self, waiting: dict[str, int]) -> None:
        """Drop what of a request is not answered yet."""
        names = list(waiting)
        waiting.clear()
        if names:
            with vllm_failures("aborting requests"):
                self._engine.abort_request(names)
        if waiting is self._waiting:
            self._steps.forget()

    def _completion(self, request: Request, index: int) -> Completion:
        (output,) = request.outputs
        tokens = list(output.token_ids)
        return Completion(
            index=index,
            text=self._encoder.answer(tokens),
            tokens=len(tokens),
            finish=Finish.STOP if output.finish_reason == "stop" else Finish.LENGTH,
        )

    def _require_sound(self, sound: bool) -> None:  # noqa: FBT001 - the only thing that it is told
        if not sound:
            self._unseen = False  # what is told once is not told again
            raise CandidateError("the candidate's logits are not finite")

    def _require_idle(self) -> None:
        if self._waiting:
            raise PreconditionError(
                "the engine still answers a request", remedy="close its generator first"
            )

    def weights_sha256(self) -> str:
        """SHA-256 over the bytes of all physical tensors, in canonical order and layout."""
        return self._workers.sha256()

    def close(self) -> None:
        """Free the model; the engine is not used afterwards."""
        with vllm_failures("closing vLLM"):
            self._engine.engine_core.shutdown()
            del self._engine, self._steps
            for name in ("_parking", "_workers"):
                self.__dict__.pop(name, None)
            cleanup_dist_env_and_memory()


def _go_on() -> None:
    """Ask for nothing between decode steps."""
