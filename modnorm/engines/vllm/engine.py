"""The engine on vLLM, the fastest on a GPU."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
import transformers
import vllm
from vllm import RequestOutput, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind

from modnorm.checkpoint.checkpoint_files import require_unchanged
from modnorm.checkpoint.prompts import PromptEncoder, check_fit
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, dtype_name, require_same_architecture
from modnorm.engines.candidate_engine import CandidateEngine
from modnorm.engines.drafts.matching import CONTEXT, PromptRows
from modnorm.engines.protocol import Completion, GenerationLimits, no_poll
from modnorm.engines.settings import Drafts, EngineSettings
from modnorm.engines.vllm.numerics import chosen_numerics
from modnorm.engines.vllm.rank_group import RankGroup
from modnorm.engines.vllm.speculator import row_of
from modnorm.engines.vllm.start import finish_of, recorded_settings, start_vllm, vllm_failures
from modnorm.errors import CandidateError, InvalidInputError, PreconditionError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor


class AnswerFeed:
    """Names requests after their prompts, and collects their answers."""

    def __init__(self, ranks: RankGroup) -> None:
        self._ranks = ranks
        self._prompts = PromptRows()
        self._ends: dict[int, Sequence[int]] = {}
        """The last `CONTEXT` tokens of each row's prompt."""
        self._answers: list[tuple[int, Sequence[int]]] = []

    def name(self, number: int, prompt: Sequence[int]) -> str:
        """Return the id of a request for a prompt."""
        row, end = self._prompts.row_of(prompt), prompt[-CONTEXT:]
        self._ends[row] = [*[-1] * (CONTEXT - len(end)), *end]  # -1 equals no token
        return f"{number}.{row}"

    def add(self, request_id: str, answer: Sequence[int]) -> None:
        self._answers.append((row_of(request_id), answer))

    def send(self) -> None:
        """Send all collected answers to the workers."""
        if not self._answers:
            return
        answers, self._answers = self._answers, []
        spans = [[*self._ends[row], *answer] for row, answer in answers]
        tokens = np.concatenate([np.asarray(span, dtype=np.int32) for span in spans])
        self._ranks.add_answers(
            self._prompts.take_reused(),
            [row for row, _ in answers],
            [len(span) for span in spans],
            tokens.tobytes(),
        )


CHECK_EVERY = 64
"""Steps between checks of the logits for NaN and infinity. Each check returns the result of the
last one, so neither the device nor the scheduler waits."""

FIRST_TOKENS = 2048
"""Prompt tokens that start a request; the other prompts are submitted while steps run."""


class VllmEngine(CandidateEngine):
    """One model in vLLM, in the checkpoint's dtype, and its pristine copy."""

    def __init__(self, checkpoint: Checkpoint, settings: EngineSettings) -> None:
        super().__init__()
        stored = CheckpointWeights(checkpoint)
        self._checkpoint = checkpoint
        self._settings = settings
        self._encoder = PromptEncoder(checkpoint)
        self.layout, self._dtype = stored.layout, stored.dtype
        self._requests = 0
        """Prompts submitted so far, which number the requests of vLLM."""
        self._waiting: dict[str, int] = {}
        """Position of each unfinished prompt by its request's id."""
        self._unchecked = False
        """Whether some logits of the candidate were not checked."""
        self._engine = start_vllm(checkpoint, stored.layout, stored.dtype, self._settings)
        self._step_tokens = self._engine.vllm_config.scheduler_config.max_num_batched_tokens
        try:
            digest = checkpoint.digest
            self._weights: RankGroup = RankGroup(self._engine, stored.layout, stored.dtype, digest)
            drafts = self._settings.drafts is Drafts.POPULATION
            self._feed = AnswerFeed(self._weights) if drafts else None
            require_unchanged(checkpoint.directory, digest)
        except BaseException:
            self.close()
            raise

    @property
    def environment(self) -> Mapping[str, str]:
        """Engine, library versions, device and settings that rounding may depend on."""
        on_gpu = not current_platform.is_cpu()
        threads = {} if on_gpu else {"threads": str(torch.get_num_threads())}
        return {
            "engine": "vllm",
            "vllm": str(vllm.__version__),
            "transformers": transformers.__version__,
            "torch": str(torch.__version__),
            "device": str(current_platform.get_device_name()) if on_gpu else "cpu",
            **threads,
            "arithmetic": dtype_name(self._dtype),
            "mode": str(chosen_numerics()),
            "tensor_parallel": str(self._weights.size),
            **recorded_settings(self._engine),
        }

    @property
    def _is_answering(self) -> bool:
        return bool(self._waiting)

    def replace_model(self, checkpoint: Checkpoint) -> None:
        self._require_unused()
        require_same_architecture(self._checkpoint, self._dtype, checkpoint)
        self._weights.replace_model(checkpoint)
        self._checkpoint, self._encoder = checkpoint, PromptEncoder(checkpoint)

    @contextmanager
    def candidate(self, descriptor: Descriptor, scale_map: ScaleMap) -> Iterator[Descriptor]:
        self._require_idle()
        with super().candidate(descriptor, scale_map) as resolved:
            self._unchecked = False
            yield resolved
            if self._unchecked:
                self._require_finite(self._weights.has_finite_logits())

    def _restore_base(self) -> None:
        try:
            self._abort()
        finally:
            super()._restore_base()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        limits: GenerationLimits,
        *,
        poll: Callable[[], None] | None = None,
    ) -> Generator[Completion]:
        longest = check_fit(prompts, limits.max_tokens, self._checkpoint)
        bound = self._settings.max_model_len
        if limits.sampling and self._feed:
            raise InvalidInputError(
                "drafts change the order in which vLLM uses random numbers, so a seed would not "
                "give the same completion",
                field="engine.drafts",
                remedy="set it to none",
            )
        if prompts and bound is not None and longest + limits.max_tokens > bound:
            raise InvalidInputError(
                f"{longest} prompt tokens and {limits.max_tokens} completion tokens exceed the "
                f"{bound} that the engine was started for",
                field="engine.max_model_len",
                remedy="raise or remove it",
            )
        return self._generate(prompts, limits, poll or no_poll)

    def _generate(
        self, prompts: Sequence[Sequence[int]], limits: GenerationLimits, poll: Callable[[], None]
    ) -> Generator[Completion]:
        if not prompts:
            return
        self._require_idle()
        if self._candidate is None:
            self._require_restored()
        checks = self._weights.logit_checks()
        waiting: dict[str, int] = {}
        self._waiting, self._unchecked = waiting, True
        try:
            submitted = self._submit(prompts, limits, 0, FIRST_TOKENS)
            steps = 0
            while waiting or submitted < len(prompts):
                poll()
                with vllm_failures("generation", self._engine):
                    finished = self._engine.step()
                steps += 1
                if submitted < len(prompts):
                    submitted = self._submit(prompts, limits, submitted, self._step_tokens)
                if len(finished) == len(waiting):
                    self._require_finite(self._weights.has_finite_logits())
                    self._unchecked = False
                elif steps % CHECK_EVERY == 0:
                    self._require_finite(next(checks))
                for output in finished:
                    if self._feed:
                        self._feed.add(output.request_id, output.outputs[0].token_ids)
                    yield self._completion(output, waiting.pop(output.request_id))
        finally:
            if self._waiting is waiting:  # not a generator that is closed after the next began
                self._abort()

    def _submit(
        self, prompts: Sequence[Sequence[int]], limits: GenerationLimits, start: int, tokens: int
    ) -> int:
        """Submit prompts from `start`, up to a number of tokens; return the next index."""
        end = start
        while end < len(prompts) and tokens > 0:
            tokens -= len(prompts[end])
            end += 1
        with vllm_failures("submitting prompts"):
            raw = [{"prompt_token_ids": list(prompt)} for prompt in prompts[start:end]]
            for index, prompt in enumerate(self._engine.renderer.render_cmpl(raw), start):
                self._requests += 1
                number, feed = self._requests, self._feed
                name = feed.name(number, prompts[index]) if feed else str(number)
                self._waiting[name] = index
                self._engine.add_request(name, prompt, self._sampling(index, limits))
        return end

    def _sampling(self, index: int, limits: GenerationLimits) -> SamplingParams:
        sampling = limits.sampling
        return SamplingParams(
            temperature=sampling.temperature if sampling else 0.0,
            top_p=sampling.top_p if sampling else 1.0,
            seed=sampling.seeds[index] if sampling else None,
            max_tokens=limits.max_tokens,
            stop_token_ids=sorted(self._encoder.stop_ids),
            ignore_eos=True,
            detokenize=False,
            # Otherwise vLLM makes an output for each unfinished answer at every step.
            output_kind=RequestOutputKind.FINAL_ONLY,
            # A deep copy would take half of the time of submitting a prompt.
            skip_clone=True,
        )

    def _abort(self) -> None:
        """Abort unfinished requests; give the finished answers to the drafts."""
        names = list(self._waiting)
        self._waiting.clear()
        if names:
            with vllm_failures("aborting requests"):
                self._engine.abort_request(names)
        if self._feed:
            self._feed.send()

    def _completion(self, request: RequestOutput, index: int) -> Completion:
        (output,) = request.outputs
        tokens = list(output.token_ids)
        return Completion(
            index=index,
            text=self._encoder.answer(tokens),
            tokens=len(tokens),
            finish=finish_of(output.finish_reason),
        )

    def _require_finite(self, finite: bool) -> None:  # noqa: FBT001 - its only argument
        if not finite:
            self._unchecked = False
            raise CandidateError("the candidate's logits are not finite")

    def _require_idle(self) -> None:
        if self._waiting:
            raise PreconditionError(
                "the engine is answering another request", remedy="close its generator first"
            )

    def close(self) -> None:
        with vllm_failures("closing vLLM"):
            self._engine.engine_core.shutdown()
            del self._engine
            for held in ("_weights", "_feed"):  # a start that failed has set neither
                self.__dict__.pop(held, None)
            cleanup_dist_env_and_memory()
