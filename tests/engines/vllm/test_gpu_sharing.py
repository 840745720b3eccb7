"""Engines that share a GPU under NVIDIA's MPS, and batch-invariant answers; both need a GPU.

    python -m pytest -q --confcutdir=tests/engines -o filterwarnings= -rs \
        tests/engines/vllm/test_gpu_sharing.py
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import torch

from verification.labs.waiting import HANG_SECONDS

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

from modnorm.services.evaluator.placement import Mps, Place, chosen_mps, environment_of

if TYPE_CHECKING:
    from modnorm.services.common.settings import SupervisorSettings

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

ENGINES = 3
LOAD = """
import hashlib, json, os, sys
from contextlib import nullcontext
from filelock import FileLock
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.engines import EngineSettings, GenerationLimits, Numerics, load_engine
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.methods import build_scale_map
from modnorm.spec import Masses
from modnorm.tasks.protocol import Message

checkpoint = resolve_checkpoint("tiny-thicket")
encoder = PromptEncoder(checkpoint)
prompts = [
    encoder.encode([Message("user", "Using the numbers [3, 5, %d], make %d." % (n, 2 * n))])
    for n in range(5, 69)
]
scale_map = build_scale_map("randopt", checkpoint)

def load(**changes):
    share = float(os.environ.get("MODNORM_GPU_MEMORY_UTILIZATION", "0.3"))
    lock = os.environ.get("MODNORM_LOAD_LOCK")
    told = EngineSettings(
        max_model_len=1024, max_num_seqs=64, gpu_memory_utilization=share, **changes
    )
    with FileLock(lock) if lock else nullcontext():
        return load_engine("vllm", checkpoint, told)

def answers(engine, asked, tokens=128):
    ended = engine.generate(asked, GenerationLimits(tokens))
    return [done.text for done in sorted(ended, key=lambda done: done.index)]

def say(content):
    print(json.dumps(content), file=told, flush=True)

told = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # vLLM writes to standard output
"""
WORKER = f"""{LOAD}
engine = load()
say(engine.environment)
for line in sys.stdin:
    descriptor = Descriptor("portable-v1", int(line), "randopt", 0.005, scale_map.digest)
    with engine.candidate(descriptor, scale_map):
        weights = engine.weights_sha256()
        say("in the middle")
        texts = answers(engine, prompts * 4)
    say([weights, hashlib.sha256(json.dumps(texts).encode()).hexdigest()])
"""
INVARIANT = f"""{LOAD}
engine = load(numerics=Numerics.BATCH_INVARIANT)
assert engine.environment["mode"] == "batch_invariant", engine.environment
together = answers(engine, prompts)
alone = [answers(engine, [prompt])[0] for prompt in prompts[:16]]
assert together[:16] == alone
assert answers(engine, prompts[::-1])[::-1] == together
"""


@dataclass(frozen=True)
class Shared:
    """Settings of a supervisor, which need more than vLLM brings."""

    cache_dir: Path
    engines_per_gpu: str = "auto"
    gpus_per_worker: int = 1
    gpu_memory_utilization: float = 0.9
    engine_ports: int = 23_000
    metrics_address: str = ""
    worker_name: str = ""


class Engine:
    """A process that answers a line a candidate."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hears(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended with {self.process.wait()}"
        return line

    def begin(self, seed: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()
        assert "in the middle" in self.hears()

    def candidate(self, seed: int) -> str:
        self.begin(seed)
        return self.hears()


@pytest.fixture
def mps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mps]:
    daemon = chosen_mps("on", os.environ, tmp_path_factory.mktemp("m"))
    assert daemon is not None
    yield daemon
    daemon.close()


@pytest.fixture
def start(mps: Mps, tmp_path: Path) -> Iterator[Callable[[int], Engine]]:
    shared = cast("SupervisorSettings", Shared(tmp_path / "cache"))
    inherited = dict(os.environ) | mps.changes
    with ExitStack() as started:

        def begin(slot: int) -> Engine:
            device = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
            place = Place(slot, device, slot, ENGINES)
            engine = Engine(environment_of(place, shared, inherited, tmp_path))
            started.enter_context(killed(engine.process))
            return engine

        yield begin


@contextmanager
def killed(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def test_killing_one_of_the_engines_on_a_gpu_ends_no_other(start: Callable[[int], Engine]) -> None:
    engines = [start(slot) for slot in range(ENGINES)]
    assert len({engine.hears() for engine in engines}) == 1
    expected = engines[0].candidate(2)
    for engine in engines:
        engine.begin(1)
    engines[1].process.kill()
    first, third = engines[0].hears(), engines[2].hears()
    assert first == third
    assert engines[2].candidate(2) == expected
    anew = start(1)
    anew.hears()
    assert anew.candidate(2) == expected
    assert anew.candidate(1) == first


def test_batch_invariant_answers_do_not_depend_on_their_batch() -> None:
    command = [sys.executable, "-c", INVARIANT]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
