"""A candidate of the bundled model and a few rows that score it."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.engines import Engine, GenerationLimits, load_engine
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.methods import build_scale_map
from modnorm.search.scoring import CandidateResult, PromptedRows, answer_candidate
from modnorm.spec import DataSpec
from modnorm.tasks import Row
from modnorm.tasks.countdown import Countdown
from modnorm.tasks.row_loading import load_data


@pytest.fixture(scope="session")
def limits() -> GenerationLimits:
    """Return limits that most answers meet; a few are cut off."""
    return GenerationLimits(max_tokens=112)


@pytest.fixture(scope="session")
def task() -> Countdown:
    return Countdown()


@pytest.fixture(scope="session")
def checkpoint() -> Checkpoint:
    return resolve_checkpoint("tiny-thicket")


@pytest.fixture(scope="session")
def engine(checkpoint: Checkpoint) -> Iterator[Engine]:
    engine = load_engine("auto", checkpoint)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def make_scale_map(checkpoint: Checkpoint) -> Callable[[str], ScaleMap]:
    """Build the scale map of a method without a profile."""
    return lambda method: build_scale_map(method, checkpoint)


@pytest.fixture(scope="session")
def scale_map(make_scale_map: Callable[[str], ScaleMap]) -> ScaleMap:
    return make_scale_map("randopt")


@pytest.fixture(scope="session")
def rows(task: Countdown) -> Sequence[Row]:
    spec = DataSpec(source="bundled:countdown-selection", limit=12)
    return load_data(task, spec, field="task.selection").rows


@pytest.fixture(scope="session")
def descriptor(scale_map: ScaleMap) -> Descriptor:
    return Descriptor("portable-v1", 11, "randopt", 0.005, scale_map.digest)


@pytest.fixture(scope="session")
def judges() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as judges:
        yield judges


@pytest.fixture(scope="session")
def score(
    engine: Engine,
    task: Countdown,
    rows: Sequence[Row],
    checkpoint: Checkpoint,
    descriptor: Descriptor,
    scale_map: ScaleMap,
    limits: GenerationLimits,
    judges: Executor,
) -> Callable[..., CandidateResult]:
    """Return a function that scores a candidate, by default the fixture `descriptor`."""
    encoder = PromptEncoder(checkpoint)
    prompts = [encoder.encode(task.messages(row)) for row in rows]
    prompted = PromptedRows(task, rows, prompts, limits)

    def score(
        candidate: Descriptor = descriptor,
        drawn_with: ScaleMap = scale_map,
        *,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> CandidateResult:
        return answer_candidate(
            engine, prompted, candidate, drawn_with, judges=judges, on_progress=on_progress
        )

    return score


@pytest.fixture(scope="session")
def result(score: Callable[..., CandidateResult]) -> CandidateResult:
    return score()
