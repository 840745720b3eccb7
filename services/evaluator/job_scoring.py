"""Answers, scores and reports the rows of a job."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from modnorm.engines import GenerationLimits
from modnorm.errors import (
    DoesNotFitError,
    EngineError,
    InvalidInputError,
    PreconditionError,
    StaleLeaseError,
)
from modnorm.sandbox import Runner
from modnorm.search.scoring import PromptedRows, answer_candidate
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.common.software import SOFTWARE
from modnorm.services.evaluator.aggregator_client import AggregatorClient
from modnorm.services.evaluator.job_inputs import ArtifactCache, TaskCache, UnfitError
from modnorm.services.evaluator.lease import CandidateLease
from modnorm.services.evaluator.metrics import EvaluatorMetrics
from modnorm.services.evaluator.model_cache import LoadedModel, ModelCache
from modnorm.services.evaluator.shutdown import Watchdog
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.answer_sheets import pack_answers
from modnorm.wire.conversions import descriptor_to_proto

POLL_SECONDS = 0.2
"""Seconds between two checks, during scoring, whether the job must stop."""

Work = Callable[[], None]


class JobScorer:
    """Answers the rows of jobs by an engine, scores the answers and reports them."""

    def __init__(
        self,
        client: AggregatorClient,
        settings: EvaluatorSettings,
        *,
        watchdog: Watchdog,
        sandbox: Runner | None,
        metrics: EvaluatorMetrics,
    ) -> None:
        self.metrics = metrics
        self._client = client
        self._artifacts = ArtifactCache(client)
        self.models = ModelCache(self._artifacts, settings, self.metrics.model_loads.inc)
        self._may_make_room = settings.may_make_room
        self._tasks = TaskCache(sandbox)
        self._judges = ThreadPoolExecutor(len(os.sched_getaffinity(0)), "judge")
        self._watchdog = watchdog
        self._judging = Watchdog(settings.stall_seconds)
        self.needs_new_process = False
        """Whether only a new process can load the requested engine."""
        self.makes_room = False
        """Whether that is because the model needs a larger share of the GPU's memory."""

    @property
    def judge_hangs(self) -> bool:
        """Whether no answer of the job in the background was judged within the limit."""
        return self._judging.is_overdue

    def answer(self, job: messages.Job, lease: CandidateLease) -> Work:
        """Answer a job's rows; return the remaining work, which needs no engine."""
        poll = partial(self._progress, lease, 0)
        isolation = self._tasks.check(job.task)
        task = self._tasks.of(job)
        rows = self._artifacts.rows(job.rows_digest)
        with self._watchdog.loading():
            model = self._load(job, poll)
        with self._watchdog.working():
            canary, prompts = model.replay(task, job, poll), model.prompts(task, job.rows_digest)
            started = time.perf_counter()
            descriptor, normaliser = self._artifacts.reach(job, model.engine, poll)
            reach_seconds = time.perf_counter() - started
            poll()
            answered = answer_candidate(
                model.engine,
                PromptedRows(
                    task, rows, prompts, GenerationLimits(job.max_tokens), f"{split_name(job)} row"
                ),
                descriptor,
                self._artifacts.scale_map(job.descriptor.scale_map_digest),
                judges=self._judges,
                on_progress=partial(self._progress, lease),
            )
        environment = {**model.engine.environment, **isolation, **canary}

        def report() -> None:
            with answered.judge as judge, self._judging.working():
                before = len(rows)
                while left := judge.wait(POLL_SECONDS):
                    lease.progress(len(rows))
                    if left < before:
                        before = left
                        self._judging.beat()
                answers = judge.answers()
            self._client.report(
                messages.ReportJobRequest(
                    lease=job.lease,
                    experiment_id=job.experiment_id,
                    descriptor=descriptor_to_proto(answered.descriptor),
                    worker=self._client.worker,
                    environment={**SOFTWARE, **environment},
                    switch_seconds=reach_seconds + answered.switch_seconds,
                    generate_seconds=answered.generate_seconds,
                    score_seconds=time.perf_counter() - answered.since,
                    normaliser=normaliser,
                    answers=pack_answers(answers),
                )
            )
            self.metrics.scored(answers)

        return report

    def warm(self, job: messages.Job, poll: Callable[[], None]) -> None:
        """Load the model of a job."""

        def beat() -> None:
            self._watchdog.beat()
            poll()

        with self._watchdog.loading():
            self.models.load(job, beat)

    def close(self) -> None:
        """Free the loaded model and score nothing more."""
        self._judges.shutdown(wait=False, cancel_futures=True)  # one may never return
        self.models.close()

    def _load(self, job: messages.Job, poll: Callable[[], None]) -> LoadedModel:
        try:
            return self.models.load(job, poll)
        except StaleLeaseError:
            raise
        except PreconditionError as error:
            self.needs_new_process = True
            raise UnfitError(str(error)) from error
        except InvalidInputError as error:
            raise EngineError(f"this worker cannot load the model: {error}") from error
        except DoesNotFitError as error:
            if not self._may_make_room:
                raise
            self.needs_new_process = self.makes_room = True
            raise UnfitError(str(error)) from error

    def _progress(self, lease: CandidateLease, done: int) -> None:
        """Record a sign of life of the engine and the progress of a job."""
        self._watchdog.beat()
        lease.progress(done)


def split_name(job: messages.Job) -> str:
    """Return the name of a job's split in lower case: `selection`."""
    return messages.Split.Name(job.split).removeprefix("SPLIT_").lower()
