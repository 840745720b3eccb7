"""Answers of a model to rows of a task, by an engine in this process."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace

from modnorm.checkpoint.prompts import PromptEncoder, check_fit
from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import Engine, EngineSettings, GenerationLimits, Sampling, load_engine
from modnorm.engines.settings import Numerics
from modnorm.search.answers import Answer
from modnorm.search.scoring import AnswerJudge, PromptedRows
from modnorm.spec import ExperimentSpec
from modnorm.tasks import Row, Task
from modnorm.tasks.task_errors import render_prompts


class AnsweringModel:
    """A model in an engine that answers rows; one thread uses it."""

    def __init__(
        self, checkpoint: Checkpoint, engine: Engine, judges: Executor, max_tokens: int
    ) -> None:
        self.engine = engine
        self._encoder = PromptEncoder(checkpoint)
        self._checkpoint = checkpoint
        self._judges = judges
        self._max_tokens = max_tokens

    def ask(self, task: Task, rows: Sequence[Row], name: str) -> PromptedRows:
        """Return rows with their prompts, all of which fit the model."""
        prompts = [self._encoder.encode(each) for each in render_prompts(task, rows, name)]
        check_fit(prompts, self._max_tokens, self._checkpoint)
        limits = GenerationLimits(self._max_tokens)
        return PromptedRows(task, rows, prompts, limits, name)

    def answers(
        self,
        asked: PromptedRows,
        sampling: Sampling | None = None,
        on_answer: Callable[[], object] = lambda: None,
    ) -> tuple[Answer, ...]:
        """Return judged answers of the weights that the engine holds now, in row order."""
        limits = replace(asked.limits, sampling=sampling)
        with (
            AnswerJudge(self._judges, asked) as judge,
            closing(self.engine.generate(asked.prompts, limits)) as completions,
        ):
            for completion in completions:
                judge.judge(completion)
                on_answer()
            return judge.answers()


@contextmanager
def answering_model(
    spec: ExperimentSpec, checkpoint: Checkpoint, max_tokens: int
) -> Iterator[AnsweringModel]:
    """Load a model into the engine of a spec; the end of the context frees it.

    Drafts are off: with them vLLM would use the random numbers of a request in another order.
    """
    settings = EngineSettings(
        max_model_len=spec.engine.max_model_len,
        tensor_parallel_size=spec.engine.tensor_parallel_size,
        max_num_seqs=spec.engine.max_num_seqs,
        numerics=Numerics(spec.engine.numerics),
    )
    with (
        closing(load_engine(spec.engine.name, checkpoint, settings)) as engine,
        ThreadPoolExecutor(len(os.sched_getaffinity(0)), "judge") as judges,
    ):
        yield AnsweringModel(checkpoint, engine, judges, max_tokens)
