"""The self-check: correct kernels pass, others do not."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="no Triton for this platform")

from modnorm.geometry.scale_map import Norm
from modnorm.noise import Block
from modnorm.perturbation.kernels import fused, launch
from modnorm.perturbation.kernels.fused import FusedWeights, deviation


@pytest.fixture
def few(monkeypatch):
    """Check one tensor of two views, since the interpreter is slow."""
    blocks = {((24, 16), Norm.SPECTRAL): (Block((0, 16)), Block((16, 24), (8, 16)))}
    monkeypatch.setattr(fused, "_BLOCKS", blocks)


def test_correct_kernels_pass(device, small):
    sizes = replace(small, write_blocks=512, product_blocks=512, copy_blocks=512)
    assert deviation([torch.bfloat16], device, sizes) is None


def test_a_kernel_that_skips_a_kind_of_view_is_found(device, small, few, monkeypatch):
    write = launch.write
    monkeypatch.setattr(launch, "write", lambda work, **rest: work.rows or write(work, **rest))

    assert "weights of spectral (24, 16)" in (deviation([torch.bfloat16], device, small) or "")


def test_a_wrong_product_is_found(device, small, few, monkeypatch):
    write = launch.write_product

    def without_the_last(work, *, rank, **rest):
        write(work, rank=rank - 1, **rest)

    monkeypatch.setattr(launch, "write_product", without_the_last)

    assert "of rank 5 in" in (deviation([torch.bfloat16], device, small) or "")


def test_a_restore_that_does_nothing_is_found(device, small, few, monkeypatch):
    monkeypatch.setattr(launch, "restore", lambda work, sizes: None)

    assert deviation([torch.float16], device, small) == "restored weights differ from the base"


def test_a_wrong_norm_is_found(device, small, few, monkeypatch):
    write = FusedWeights.write

    def beside(self, seed, radius, scale_map, given):
        return write(self, seed, radius * (1 + 1e-4), scale_map, given)

    monkeypatch.setattr(FusedWeights, "write", beside)

    assert "the norm of" in (deviation([torch.bfloat16], device, small) or "")
