"""Candidates written by kernels: the fast equal of the plain version in `perturbation.weights`."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from modnorm.errors import IncompatibleError
from modnorm.geometry.scale_map import ScaleMap, TensorScale
from modnorm.noise.gaussian import magnitudes
from modnorm.noise.philox import stream_key
from modnorm.noise.portable import PortableNoise
from modnorm.perturbation.coefficients import coefficients_of
from modnorm.perturbation.kernels import launch
from modnorm.perturbation.kernels.noise_norms import NoiseNorms, supported
from modnorm.perturbation.kernels.tuning import Tuning
from modnorm.perturbation.kernels.work import Surface, plan_work, surface
from modnorm.perturbation.views import HeldTensor

_PLANS = 8
"""Scale maps whose tables are kept: those of the experiments that an engine serves in turn."""


class FusedWeights:
    """Writes candidates of `portable-v1`, restores and compares, a few launches each.

    The weights are those of the plain version, bit for bit, for the same coefficients. The norms
    of noise are sums, which this version takes in another order.

    Args:
        held: All physical tensors, by name.
        tuning: Launch sizes.

    Raises:
        IncompatibleError: a view's strides or size are beyond the kernels; see `addressable`.
    """

    def __init__(self, held: Mapping[str, HeldTensor], tuning: Tuning | None = None) -> None:
        self._held = held
        self._tuning = tuning or Tuning()
        self._device = next(iter(held.values())).device
        self._everything = plan_work(
            [
                (tensor.dtype, one)
                for index, tensor in enumerate(held.values())
                for one in _surfaces(tensor, index)
            ],
            self._tuning.copy_blocks,
            self._device,
        )
        table = torch.tensor(magnitudes(), dtype=torch.int32).to(torch.int16)
        self._magnitudes = table.to(self._device)
        self._plans: dict[str, _Plan] = {}

    def write(
        self, seed: int, radius: float, scale_map: ScaleMap, given: Sequence[float] | None
    ) -> tuple[float, ...]:
        """Write all active tensors; return their coefficients.

        The device is waited for once, at the end, and only if the coefficients were not given.
        """
        if not scale_map.active:
            return ()
        with self._on_device():
            plan = self._plan(scale_map)
            keys = self._tensor(plan.keys(seed), torch.int64)
            if given is not None:
                plan.write(keys, self._tensor(given, torch.float32))
                return tuple(given)
            coefficients = coefficients_of(plan.norms.compute(keys), plan.scales, radius)
            plan.write(keys, coefficients)
            return tuple(coefficients.tolist())

    def restore(self) -> None:
        """Copy the pristine weights back."""
        with self._on_device():
            for work in self._everything:
                launch.restore(work, self._tuning)

    def is_pristine(self) -> bool:
        """Whether the weights are the pristine ones, bit for bit; waits for the device once."""
        differs = torch.zeros(1, dtype=torch.int32, device=self._device)
        with self._on_device():
            for work in self._everything:
                launch.compare(work, differs, self._tuning)
        return not differs.item()

    def supports(self, scale_map: ScaleMap) -> bool:
        """Whether the norms of a scale map are among those that kernels compute."""
        return all(supported(scale) for scale in scale_map.active)

    def _plan(self, scale_map: ScaleMap) -> "_Plan":
        if scale_map.digest not in self._plans:
            if len(self._plans) == _PLANS:
                self._plans.clear()
            self._plans[scale_map.digest] = _Plan(
                scale_map.active, self._held, self._magnitudes, self._tuning
            )
        return self._plans[scale_map.digest]

    def _tensor(self, values: Sequence[object], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype).to(self._device)

    def _on_device(self) -> AbstractContextManager[object]:
        on_gpu = self._device.type == "cuda"
        return torch.cuda.device(self._device) if on_gpu else nullcontext()


class _Plan:
    """The tables of one scale map."""

    def __init__(
        self,
        active: Sequence[TensorScale],
        held: Mapping[str, HeldTensor],
        table: torch.Tensor,
        tuning: Tuning,
    ) -> None:
        self._names = [scale.name for scale in active]
        self._magnitudes = table
        self._tuning = tuning
        device = table.device
        scales = [scale.scale for scale in active]
        self.scales = torch.tensor(scales, dtype=torch.float64).to(device)
        self.norms = NoiseNorms(active, device, table, tuning)
        self._work = plan_work(
            [
                (held[name].dtype, one)
                for index, name in enumerate(self._names)
                for one in _surfaces(held[name], index)
            ],
            tuning.write_blocks,
            device,
        )

    def keys(self, seed: int) -> list[tuple[int, int]]:
        return [stream_key(PortableNoise.name, seed, name) for name in self._names]

    def write(self, keys: torch.Tensor, coefficients: torch.Tensor) -> None:
        for work in self._work:
            launch.write(
                work,
                keys=keys,
                coefficients=coefficients,
                magnitudes=self._magnitudes,
                tuning=self._tuning,
            )


def addressable(held: Mapping[str, HeldTensor]) -> bool:
    """Whether the kernels can write all of these views."""
    devices = {tensor.device for tensor in held.values()}
    shapes = [
        surface(tensor.tensor.shape, *copy, 0)
        for tensor in held.values()
        for copy in tensor.copies
    ]
    return len(devices) == 1 and all(one is not None and one.addressable for one in shapes)


def _surfaces(held: HeldTensor, index: int) -> list[Surface]:
    found = [surface(held.tensor.shape, *copy, index) for copy in held.copies]
    surfaces = [one for one in found if one is not None and one.addressable]
    if len(surfaces) != len(found):
        raise IncompatibleError(
            f"{held.tensor.name} is laid out in a way that kernels cannot write"
        )
    return surfaces
