"""What turns a job into answers and a report."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from prometheus_client import CollectorRegistry

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import Engine, EngineSettings, GenerationLimits
from modnorm.errors import (
    DoesNotFitError,
    EngineError,
    InvalidInputError,
    PreconditionError,
    StaleLeaseError,
)
from modnorm.perturbation.descriptor import Descriptor
from modnorm.sandbox import Runner
from modnorm.search.scoring import Answered, CandidateResult, answer_candidate
from modnorm.search.stopping import EarlyStop
from modnorm.search.watching import Resting
from modnorm.tasks import Task
from modnorm.v1 import evaluation_pb2 as messages
from services.evaluator.artifact_cache import Artifacts
from services.evaluator.candidate_bar import (
    Hurdle,
    early_stop,
    nothing_to_answer,
    open_rows,
    renumbered,
    split_name,
)
from services.evaluator.aggregator_client import AggregatorClient
from services.evaluator.lease import HeldLease
from services.evaluator.metrics import EvaluatorMetrics
from services.evaluator.model_cache import LoadedModel, LoadEngine, Loading, Models
from services.evaluator.parked_jobs import QuietTurn
from services.evaluator.report_messages import report_parts
from services.evaluator.task_cache import Tasks, UnfitError
from services.evaluator.trained_states import States
from services.evaluator.watchdog import Pulse

LOOK_SECONDS = 0.2
"""Seconds between two looks at whether a job whose answers are being judged is still wanted."""

Work = Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What of a job there is to do."""

    task: Task
    numbers: Sequence[int]
    """Of the rows that need an answer, in the whole split."""
    stop: EarlyStop | None
    turn: Resting | None


class Evaluator:
    """Has the rows of jobs answered, and reports what came of it; used by one thread.

    Args:
        gateway: The aggregator.
        loading: How models are loaded.
        pulse: Where the engine's signs of life are noted.
        sandbox: Runs programs that models wrote; None where no task does.
        metrics: What is counted.
    """

    def __init__(
        self,
        gateway: AggregatorClient,
        loading: Loading,
        *,
        pulse: Pulse | None = None,
        sandbox: Runner | None = None,
        metrics: EvaluatorMetrics | None = None,
    ) -> None:
        self.metrics = metrics or EvaluatorMetrics(CollectorRegistry())
        self._gateway = gateway
        self._artifacts = Artifacts(gateway)
        self._states = States(self._artifacts)
        self.models = Models(self._artifacts, replace(loading, load=self._counted(loading.load)))
        self._may_make_room = loading.may_make_room
        self._tasks = Tasks(sandbox)
        self._judges = ThreadPoolExecutor(len(os.sched_getaffinity(0)), "judge")
        self._pulse = pulse or Pulse(float("inf"))
        self.spent = False
        """Whether this process can load no engine any more that is asked for; another can."""
        self.makes_room = False
        """Whether that is for want of memory, which fewer workers on the GPU would have."""

    def answer(
        self, job: messages.Job, lease: HeldLease, hurdle: Hurdle, turn: Resting | None = None
    ) -> Work:
        """Have a job's rows answered; return what is left to do, away from the engine.

        Args:
            job: The job.
            lease: Held until all is done.
            hurdle: Its bar.
            turn: When it rests for others; None where it runs through.

        Raises:
            UnfitError: this worker cannot do it, another may.
            ModnormError: whatever went wrong, or what ends the lease.
            HandedBackError: the worker stops first.
        """

        def go_on() -> None:
            self._go_on(lease, 0)

        fences = self._tasks.check(job.task)
        task = self._tasks.of(job)
        rows = open_rows(job, len(self._artifacts.rows(job.rows_digest)))
        if not rows:
            return lambda: self._report(job, nothing_to_answer(job), {})
        with self._pulse.loading():
            model = self._load(job, go_on)
        with self._pulse.working():
            canary = model.replay(task, job, go_on)
            reached = self._states.reach(job, model.engine, go_on)
            stop = early_stop(job, task, hurdle)
            rests = turn if stop and job.may_stop else None
            asked = _Asked(task, rows, stop, rests and QuietTurn(rests, self._pulse, lease))
            answered = self._score(job, asked, model, lease, reached.descriptor)
        environment = {**model.engine.environment, **fences, **canary}

        def report() -> None:
            with answered:
                while not answered.is_judged(LOOK_SECONDS):
                    lease.progress(len(rows))
                result = answered.result()
            whole = reached.charge(renumbered(result, rows))
            self._report(job, whole, environment, reached.normaliser)
            self.metrics.scored(result)

        return report

    def unload(self) -> None:
        """Let go of the engine; the next job loads one."""
        self.models.close()

    def close(self) -> None:
        """Free the loaded model; judge nothing more."""
        self._judges.shutdown(cancel_futures=True)
        self.models.close()

    def _counted(self, load: LoadEngine) -> LoadEngine:
        def counted(engine: str, checkpoint: Checkpoint, settings: EngineSettings) -> Engine:
            self.metrics.model_loads.inc()
            return load(engine, checkpoint, settings)

        return counted

    def _load(self, job: messages.Job, poll: Callable[[], None]) -> LoadedModel:
        """Load the model of a job, without counting an attempt where a new process is needed.

        The aggregator's side has looked at model and engine: what is not here may be elsewhere.
        """
        try:
            return self.models.load(job, poll)
        except StaleLeaseError:
            raise
        except PreconditionError as error:
            self.spent = True
            raise UnfitError(str(error)) from error
        except InvalidInputError as error:
            raise EngineError(f"this worker cannot load the model: {error}") from error
        except DoesNotFitError as error:
            if not self._may_make_room:
                raise
            self.spent = self.makes_room = True
            raise UnfitError(str(error)) from error

    def _go_on(self, lease: HeldLease, done: int) -> None:
        """Note a sign of life of the engine, and its progress."""
        self._pulse.beat()
        lease.progress(done)

    def _score(
        self,
        job: messages.Job,
        asked: _Asked,
        model: LoadedModel,
        lease: HeldLease,
        descriptor: Descriptor,
    ) -> Answered:
        """Answer the rows; in the result they are counted from 0."""
        rows = self._artifacts.rows(job.rows_digest)
        prompts = model.prompts(asked.task, job.rows_digest)
        split = split_name(job)
        lease.total = len(asked.numbers)

        self._go_on(lease, 0)
        return answer_candidate(
            model.engine,
            asked.task,
            [rows[number] for number in asked.numbers],
            [prompts[number] for number in asked.numbers],
            descriptor,
            self._artifacts.scale_map(job.descriptor.scale_map_digest),
            GenerationLimits(job.max_tokens),
            judges=self._judges,
            on_progress=lambda done: self._go_on(lease, done),
            stop=asked.stop,
            resting=asked.turn,
            called=lambda index: f"{split} row {asked.numbers[index]}",
        )

    def _report(
        self,
        job: messages.Job,
        result: CandidateResult,
        environment: Mapping[str, str],
        normaliser: float = 0.0,
    ) -> None:
        worker = self._gateway.worker
        self._gateway.report(
            lambda: report_parts(job.lease, worker, result, environment, normaliser)
        )
