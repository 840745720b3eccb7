"""A process computes in one mode; each case runs in its own process."""

import subprocess
import sys

import pytest

from verification.labs.waiting import HANG_SECONDS

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

START = """
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.engines import EngineSettings, Numerics, load_engine
from modnorm.engines.vllm.numerics import choose_numerics, chosen_numerics
from modnorm.errors import IncompatibleError, PreconditionError
import torch

INVARIANT = EngineSettings(max_model_len=256, max_num_seqs=4, numerics=Numerics.BATCH_INVARIANT)
checkpoint = resolve_checkpoint("tiny-thicket")
"""
REFUSED = """
try:
    engine = load_engine("vllm", checkpoint, INVARIANT)
except IncompatibleError as error:
    assert error.field == "engine.numerics", error
    assert not torch.cuda.is_available(), error
else:
    assert engine.environment["mode"] == "batch_invariant"
"""
CHANGED = """
choose_numerics(Numerics.FAST)
import vllm.envs
assert chosen_numerics() is Numerics.FAST
choose_numerics(Numerics.FAST)
try:
    load_engine("vllm", checkpoint, INVARIANT)
except PreconditionError as error:
    assert error.field == "engine.numerics", error
else:
    raise AssertionError("it changed")
"""


@pytest.mark.parametrize("case", [REFUSED, CHANGED], ids=["refused on a CPU", "changed"])
def test_numerics(case: str) -> None:
    command = [sys.executable, "-c", START + case]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
