"""A process computes in one mode, here a process of its own."""

import subprocess
import sys

import pytest

from verification.labs.waiting import HANG_SECONDS

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

CODE = """
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.engines import EngineSettings, Numerics, load_engine
from modnorm.engines.vllm.numerics import choose_numerics, chosen_numerics
from modnorm.errors import IncompatibleError, PreconditionError
import torch

INVARIANT = EngineSettings(max_model_len=256, max_num_seqs=4, numerics=Numerics.BATCH_INVARIANT)
checkpoint = resolve_checkpoint("tiny-thicket")
try:
    engine = load_engine("vllm", checkpoint, INVARIANT)
except IncompatibleError as error:
    assert error.field == "engine.numerics", error
    assert not torch.cuda.is_available(), error
else:
    assert engine.environment["mode"] == "batch_invariant"
assert chosen_numerics() is Numerics.BATCH_INVARIANT
choose_numerics(Numerics.BATCH_INVARIANT)
try:
    load_engine("vllm", checkpoint, EngineSettings(max_model_len=256, max_num_seqs=4))
except PreconditionError as error:
    assert error.field == "engine.numerics", error
else:
    raise AssertionError("it changed")
"""


def test_numerics_are_refused_on_a_cpu_and_never_change() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", CODE],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
