"""Micro-batches: divisors of the effective batch that fit."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.training.trainer_setup import (
    CPU_BYTES,
    activation_bytes,
    halved,
    micro_batch,
    training_dtype,
)

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@given(st.integers(1, 2048), st.integers(1, 4096), st.integers(1, 2**24))
def test_a_micro_batch_divides_the_batch_and_fits(batch, longest, token_bytes):
    size = micro_batch(batch, longest, token_bytes, CPU)
    assert batch % size == 0
    assert size == 1 or size * longest * token_bytes <= CPU_BYTES


@given(st.integers(1, 2048), st.integers(2, 2048))
def test_a_halved_micro_batch_is_smaller_and_divides_the_batch(batch, size):
    smaller = halved(batch, size)
    assert 1 <= smaller <= size / 2
    assert batch % smaller == 0


def test_the_bundled_model_trains_a_whole_batch_at_once():
    config = resolve_checkpoint("tiny-thicket").config
    assert micro_batch(16, 256, activation_bytes(config, torch.float32), CPU) == 16


def test_only_frozen_weights_stay_narrow_and_only_on_a_gpu():
    assert training_dtype(torch.bfloat16, GPU, full=False) == torch.bfloat16
    for weights, device, full in [
        (torch.bfloat16, GPU, True),
        (torch.bfloat16, CPU, False),
        (torch.float16, GPU, False),
        (torch.float32, GPU, False),
    ]:
        assert training_dtype(weights, device, full=full) == torch.float32
