"""What is checked before kernels write a model: sound kernels pass, others do not."""

import pytest
import torch

pytest.importorskip("triton", reason="no Triton for this platform")

from modnorm.perturbation.kernels import launch
from modnorm.perturbation.kernels.fused import FusedWeights
from modnorm.perturbation.kernels.self_check import deviation


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_sound_kernels_pass(device, small, dtype):
    assert deviation([dtype], device, small) is None


def test_a_kernel_that_leaves_out_a_kind_of_view_is_found(device, small, monkeypatch):
    write = launch.write
    monkeypatch.setattr(launch, "write", lambda work, **rest: work.rows or write(work, **rest))

    assert "weights of spectral (96, 40)" in (deviation([torch.bfloat16], device, small) or "")


def test_a_restore_that_does_nothing_is_found(device, small, monkeypatch):
    monkeypatch.setattr(launch, "restore", lambda work, tuning: None)

    assert deviation([torch.float16], device, small) == "restored weights differ from the base"


def test_a_norm_beside_the_true_one_is_found(device, small, monkeypatch):
    write = FusedWeights.write

    def beside(self, seed, radius, scale_map, given):
        return write(self, seed, radius * (1 + 1e-4), scale_map, given)

    monkeypatch.setattr(FusedWeights, "write", beside)

    assert "the norm of" in (deviation([torch.bfloat16], device, small) or "")
