"""vLLM's worker with given answers that profiles some of its steps.

Steps are profiled by their number of sequences. The device's kernels and copies tell how long it
computes and how long it waits for the host.
"""

import json
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._C._autograd import DeviceType

from benchmarks.gpu_search.spoken_texts import SpeakingWorker
from modnorm.engines.vllm.serialization import Answer, Value, answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.autograd.profiler_util import FunctionEvent
    from vllm.v1.core.sched.output import SchedulerOutput

BANDS = ((180, 256), (90, 128), (40, 64), (9, 16))
"""Fewest and most sequences of the steps that are profiled."""
STEPS = 40
"""Steps of a profile."""
_MOST_TOKENS = 2000
"""A step with more tokens reads prompts."""
_KERNELS = 40


@dataclass(frozen=True)
class StepProfile:
    """Means over consecutive steps, in milliseconds a step.

    Attributes:
        sequences: Sequences of the first and of the last step.
        tokens: Their tokens.
        wall: Time of a step while it was profiled, which takes longer than otherwise.
        busy: Time in which the device computed or copied.
        kernels: Time of each kernel, longest first.
    """

    sequences: tuple[int, int]
    tokens: tuple[int, int]
    wall: float
    busy: float
    kernels: dict[str, float]


class StepProfiler:
    """Profiles the first steps of each band that a model runner executes.

    Args:
        runner: vLLM's model runner of version 2.
        path: Gets one line of JSON a band.
    """

    def __init__(self, runner: Any, path: Path) -> None:  # noqa: ANN401 - vLLM's
        self._path = path
        self._bands = list(BANDS)
        self._profile: torch.profiler.profile | None = None
        self._sizes: list[tuple[int, int]] = []
        self._began = 0.0
        execute = runner.execute_model

        def execute_profiled(step: "SchedulerOutput", *others: object, **named: object) -> object:
            self._observe(len(step.num_scheduled_tokens), step.total_num_scheduled_tokens)
            return execute(step, *others, **named)

        runner.execute_model = execute_profiled

    def _observe(self, sequences: int, tokens: int) -> None:
        """Begin or end a profile before a step."""
        if not sequences:
            return
        if self._profile is None:
            self._begin(sequences, tokens)
        elif len(self._sizes) == STEPS:
            self._end()
        if self._profile is not None:
            self._sizes.append((sequences, tokens))

    def _begin(self, sequences: int, tokens: int) -> None:
        fits = [one for one in self._bands if one[0] <= sequences <= one[1]]
        if fits and tokens < _MOST_TOKENS:
            self._bands.remove(fits[0])
            self._sizes = []
            torch.cuda.synchronize()
            self._profile = torch.profiler.profile()
            self._profile.start()
            self._began = time.perf_counter()

    def _end(self) -> None:
        torch.cuda.synchronize()
        wall = time.perf_counter() - self._began
        profile, self._profile = self._profile, None
        assert profile is not None
        profile.stop()
        events = [
            one
            for one in profile.events()  # type: ignore[no-untyped-call]
            if one.device_type == DeviceType.CUDA
        ]
        names = Counter[str]()
        for one in events:
            names[one.name] += one.time_range.elapsed_us()
        (first, last), milliseconds = (self._sizes[0], self._sizes[-1]), 1000 * STEPS
        line = StepProfile(
            sequences=(first[0], last[0]),
            tokens=(first[1], last[1]),
            wall=1000 * wall / STEPS,
            busy=_covered(events) / milliseconds,
            kernels={name: us / milliseconds for name, us in names.most_common(_KERNELS)},
        )
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(line)) + "\n")


def _covered(events: "Sequence[FunctionEvent]") -> float:
    """Return the microseconds in which at least one event lasts."""
    covered = end = 0.0
    for span in sorted((one.time_range.start, one.time_range.end) for one in events):
        covered += max(0.0, span[1] - max(span[0], end))
        end = max(end, span[1])
    return covered


class ProfilingWorker(SpeakingWorker):
    """Says given texts, and profiles steps on request."""

    def modnorm_profile(self, path: str) -> Answer:
        """Profile steps from now on."""

        def begin() -> Value:
            self.profiler = StepProfiler(self.model_runner, Path(path))
            return None

        return answer(begin)
