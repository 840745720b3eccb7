"""The launch of vLLM's kernel that verifies drafts, with a stand-in for the kernel."""

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

from modnorm.engines.vllm.internals import drafting
from modnorm.engines.vllm.internals.drafting import DRAFT_VERIFICATION, verify_in_one_warp


class Kernel:
    """Returns the options of a launch, as Triton gets them."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., dict[str, object]]:
        return lambda *given, **options: {"grid": grid, "given": given, **options}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Stand for the module of vLLM."""
    module = ModuleType("rejection_sampler_utils")
    monkeypatch.setitem(sys.modules, drafting._MODULE, module)
    return module


def test_programs_have_one_warp(module: ModuleType) -> None:
    module.__dict__["_insert_resampled_kernel"] = Kernel()
    assert not DRAFT_VERIFICATION.self_test(None)
    for _ in range(2):
        verify_in_one_warp()
        launched = module._insert_resampled_kernel[(7,)](1, 2, PADDED=4)
        assert launched == {"grid": (7,), "given": (1, 2), "PADDED": 4, "num_warps": 1}
    assert DRAFT_VERIFICATION.self_test(None)
    assert DRAFT_VERIFICATION.missing_name(None) is None


def test_a_vllm_without_the_kernel_is_left_to_the_register(module: ModuleType) -> None:
    verify_in_one_warp()
    assert not vars(module).keys() & {"_insert_resampled_kernel"}
    assert DRAFT_VERIFICATION.missing_name(None)
