"""Counts wrong tokens of vLLM's kernel that ends the verification of drafts, by its warps.

    python -m benchmarks.verification_race [--seconds 8]

All drafts of all requests are right. So the kernel adds one token to each, which is known. It runs
alone on the GPU, and beside a kernel on another stream that keeps the load units busy. Needs one
GPU and vLLM 0.26. `draft_verification` launches the kernel with one warp in an engine.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
import triton
import triton.language as tl
from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import _insert_resampled_kernel

from modnorm.engines.vllm.internals.draft_verification import OneWarp

REQUESTS, DRAFTS, BLOCKS = 512, 3, 149
"""Requests of a step, draft tokens of each, and parts of the vocabulary."""
_STEPS = 200
_ROOM = 64
"""Copies of the tokens behind them, so that wrong indices stay inside memory."""
_DATA = 2**28
"""Numbers that the other kernel reads, 1 GiB."""


@triton.jit
def _read_at_random(
    data: tl.tensor, size: tl.tensor, rounds: tl.tensor, BLOCK: tl.constexpr
) -> None:
    own = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = own * 97
    total = tl.zeros((BLOCK,), dtype=tl.int32)
    for _ in range(rounds):
        place = (place * 1103515245 + 12345) & (size - 1)
        total += tl.load(data + place)
    tl.store(data + own, total)


class Verification:
    """Steps in which all drafts are right.

    Args:
        kernel: The kernel, as vLLM launches it.
    """

    def __init__(self, kernel: "OneWarp | triton.JITFunction") -> None:
        self._kernel = kernel
        logits = DRAFTS + 1
        slots = torch.arange(REQUESTS, dtype=torch.int32, device="cuda")
        # A late warp of the last request reads beyond its slots.
        self._slots = torch.cat([slots.repeat_interleave(logits), slots[:8] * 0])
        self._starts = torch.arange(REQUESTS + 1, dtype=torch.int32, device="cuda") * logits
        self._temperatures = torch.zeros(REQUESTS, device="cuda")
        self._largest = torch.randn((REQUESTS, BLOCKS), device="cuda")
        tokens = torch.randint(0, 150_000, (REQUESTS, BLOCKS), device="cuda")
        self._expected = tokens.gather(1, self._largest.argmax(1, keepdim=True))[:, 0]
        self._tokens = tokens.repeat(1 + _ROOM, 1)

    def wrong(self) -> int:
        """Run steps and return the number of wrong tokens."""
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        for _ in range(_STEPS):
            counts = torch.full((REQUESTS,), DRAFTS, dtype=torch.int32, device="cuda")
            sampled = torch.full((REQUESTS, 8), -1, dtype=torch.int64, device="cuda")
            self._kernel[(REQUESTS,)](
                sampled, sampled.stride(0), counts, self._tokens, self._tokens.stride(0),
                self._largest, self._largest.stride(0), BLOCKS, self._starts, self._slots,
                self._temperatures, PADDED_RESAMPLE_NUM_BLOCKS=triton.next_power_of_2(BLOCKS),
            )  # fmt: skip
            wrong += (sampled[:, DRAFTS] != self._expected).sum()
        return int(wrong)


def main() -> None:
    """Measure and print a line for each number of warps, alone and beside other work."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="of each line")
    options = parser.parse_args()
    data = torch.zeros(_DATA, dtype=torch.int32, device="cuda")
    other = torch.cuda.Stream()
    busy = partial(_keep_busy, data, other)
    plain, fixed = _insert_resampled_kernel, OneWarp(_insert_resampled_kernel)
    for warps, kernel in (("vLLM's warps", plain), ("one warp", fixed)):
        for name, beside in (("alone", _do_nothing), ("beside reads", busy)):
            wrong, tokens = _count(Verification(kernel), beside, options.seconds)
            print(f"{warps}, {name}: {wrong} of {tokens} tokens are wrong", flush=True)


def _count(
    verification: Verification, beside: Callable[[], None], seconds: float
) -> tuple[int, int]:
    """Return the number of wrong tokens and of all."""
    verification.wrong()
    wrong, tokens, began = 0, 0, time.monotonic()
    while time.monotonic() - began < seconds:
        beside()
        wrong += verification.wrong()
        tokens += _STEPS * REQUESTS
    return wrong, tokens


def _keep_busy(data: torch.Tensor, stream: torch.cuda.Stream) -> None:
    with torch.cuda.stream(stream):
        for _ in range(4):
            _read_at_random[(132 * 12,)](data, data.numel(), 400, 128, num_warps=4)


def _do_nothing() -> None:
    pass


if __name__ == "__main__":
    main()
