"""An engine's weights as a function of a descriptor (docs/architecture.md, "A candidate ...")."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import cast

import torch

from modnorm.checkpoint.families import Layout, PhysicalTensor
from modnorm.checkpoint.weights import weights_sha256
from modnorm.errors import CandidateError, IncompatibleError, InvalidInputError, PreconditionError
from modnorm.geometry.norms import natural_norm
from modnorm.geometry.scale_map import Norm, ScaleMap, TensorScale
from modnorm.noise import Block, NoiseScheme, get_scheme
from modnorm.noise.portable import PortableNoise, find_kernel
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.held_tensor import HeldTensor, WeightView, coefficient_of, step_update
from modnorm.perturbation.lineage import NO_LINEAGE, Lineage, Rounding, Step
from modnorm.perturbation.low_rank import LowRankNoise


class FullRankNoise:
    """The noise of one tensor, drawn when it is needed."""

    def __init__(self, scheme: NoiseScheme, held: HeldTensor, seed: int) -> None:
        self._device = held.device
        self._by_block = scheme.portable
        self._sample = partial(sample_noise, scheme, held, seed)
        self._whole: torch.Tensor | None = None

    def norm(self, norm: Norm) -> torch.Tensor:
        """Return a norm of the whole tensor's noise, 0-d fp32; nothing waits for the device."""
        if norm is Norm.UNIT:
            return torch.ones((), dtype=torch.float32, device=self._device)
        return natural_norm(self._drawn(), norm)

    def block(self, block: Block) -> torch.Tensor:
        """Return the noise of a block, fp32; a portable scheme draws a block alone."""
        if self._by_block and self._whole is None:
            return self._sample(block)
        return block.of(self._drawn())

    def _drawn(self) -> torch.Tensor:
        if self._whole is None:
            self._whole = self._sample(None)
        return self._whole


def sample_noise(
    scheme: NoiseScheme, held: HeldTensor, seed: int, block: Block | None
) -> torch.Tensor:
    """Return the noise of a tensor of full rank, or of a block of it, fp32."""
    return scheme.sample(
        seed,
        held.tensor.name,
        held.tensor.shape,
        dtype=held.dtype,
        device=held.device,
        block=block,
    )


Origin = Callable[[Iterable[PhysicalTensor]], Iterator[torch.Tensor]]
"""Reads tensors of the checkpoint; yields each in turn."""


class CandidateWeights:
    """Turns the weights of an engine into any candidate and back, bit for bit.

    Candidates are written from a pristine copy of the weights. Nothing is added to or subtracted
    from the current weights. While coefficients are unresolved, `apply` also needs one fp32 tensor
    as large as the largest physical tensor; the published noise scheme always needs it.

    `views` may be a shard (a tensor-parallel rank); noise and norm are those of the whole tensor.
    They may be wider than `dtype`, to which candidates are rounded, for an engine that computes in
    float32. `origin` reads tensors of the checkpoint.
    """

    @torch.inference_mode()
    def __init__(
        self,
        layout: Layout,
        views: Mapping[str, Sequence[WeightView]],
        *,
        model_digest: str,
        dtype: torch.dtype | None = None,
        origin: Origin | None = None,
    ) -> None:
        if surplus := sorted(set(views) - {tensor.name for tensor in layout}):
            raise IncompatibleError(f"the engine holds {surplus[0]}, no tensor of the model")
        self._layout = layout
        self._model_digest = model_digest
        self._held = {
            tensor.name: HeldTensor(tensor, views.get(tensor.name, ()), dtype) for tensor in layout
        }
        self._busy = False
        self._origin = origin
        self.state: str | None = NO_LINEAGE
        """Digest of the pristine copy's lineage; None after a failed `rebase`."""
        self._rounding = Rounding.ONCE
        for device in {held.device for held in self._held.values()}:
            find_kernel(device)  # compiled now rather than at the first candidate

    @torch.inference_mode()
    def rebase(self, lineage: Lineage | None, *, poll: Callable[[], None] | None = None) -> None:
        """Make a trained state the base of later candidates."""
        target = lineage.digest if lineage else NO_LINEAGE
        if self._busy:
            raise PreconditionError("a candidate is held", remedy="restore the base first")
        if target == self.state:
            return
        steps: Sequence[Step] | None = () if lineage is None else self._missing_steps(lineage)
        if lineage is None or steps is None:
            self._restore_origin()
        if lineage is not None:
            self._apply_steps(lineage, lineage.steps if steps is None else steps, poll)

    @torch.inference_mode()
    def replace_model(self, model_digest: str, origin: Origin) -> None:
        """Hold another model of the same layout and dtype, and no state trained from it.

        After an error `state` is None: the weights belong to no model.
        """
        if self._busy:
            raise PreconditionError("a candidate is held", remedy="restore the base first")
        self._model_digest, self._origin = model_digest, origin
        self._restore_origin()

    @torch.inference_mode()
    def moments(self) -> tuple[tuple[float, float], ...]:
        """Return mean and unbiased variance of each tensor, in canonical order."""
        moments = []
        for held in self._held.values():
            variance, mean = torch.var_mean(held.assemble().to(torch.float32))
            moments.append((float(mean), float(variance)))
        return tuple(moments)

    @torch.inference_mode()
    def apply(self, descriptor: Descriptor, scale_map: ScaleMap) -> Descriptor:
        """Write exactly the candidate; any error restores the base before it is raised.

        Each element is `round(fl32(base + fl32(coefficient * z)))`. An unresolved coefficient is
        `float32(R / (s_p * max(norm_p(Z_p), 1e-12)))`: the norm is computed in float32, the other
        factors in float64 (paper, eq. modular_perturbation). Norms of low-rank noise are computed
        in float64.
        """
        if self._busy:
            raise PreconditionError("another candidate is held", remedy="restore the base first")
        if descriptor.scale_map != scale_map.digest or descriptor.method != scale_map.method:
            raise IncompatibleError("the descriptor was drawn with another scale map")
        if scale_map.model_digest != self._model_digest:
            raise IncompatibleError(
                f"the scale map is of model {scale_map.model_digest}, "
                f"the weights are of {self._model_digest}"
            )
        theirs = [(scale.name, scale.shape) for scale in scale_map.tensors]
        ours = [(tensor.name, tensor.shape) for tensor in self._layout]
        if theirs != ours:
            raise IncompatibleError("the tensors of the scale map differ from those of the model")
        if self.state is None:
            raise PreconditionError("the state is unknown", remedy="rebase on a lineage")
        if descriptor.lineage != self.state:
            raise IncompatibleError(
                f"the candidate is drawn around the state {descriptor.lineage or 'base'}, but the "
                f"loaded weights are those of {self.state or 'base'}"
            )
        _check_coefficients(descriptor, scale_map)
        scheme = _scheme(descriptor.noise)
        _check_rank(scheme, scale_map)
        self._busy = True
        try:
            return descriptor.resolved(self._write(scheme, descriptor, scale_map))
        except BaseException:
            self.restore()
            raise

    @torch.inference_mode()
    def restore(self) -> None:
        """Restore the base by copying every tensor back."""
        for held in self._held.values():
            held.restore()
        self._busy = False

    def is_pristine(self) -> bool:
        """Return whether the engine's weights equal the base bit for bit."""
        unchanged = [held.is_pristine() for held in self._held.values()]
        return bool(torch.stack(unchanged).all().item())

    def sha256(self) -> str:
        """Return SHA-256 over the current weights, in canonical order and layout."""
        return weights_sha256(self._layout, lambda tensor: self._held[tensor.name].assemble())

    def _write(
        self, scheme: NoiseScheme, descriptor: Descriptor, scale_map: ScaleMap
    ) -> tuple[float, ...]:
        """Write all active tensors; return their coefficients."""
        rank, seed, coefficients = scale_map.rank, descriptor.seed, descriptor.coefficients
        resolved = list[torch.Tensor]()
        for index, scale in enumerate(scale_map.active):
            held = self._held[scale.name]
            noise = (
                FullRankNoise(scheme, held, seed)
                if rank is None
                else LowRankNoise.draw(held.tensor, rank, seed=seed, device=held.device)
            )
            if coefficients is None:
                norm, divisor = noise.norm(scale.norm), cast("float", scale.scale)
                resolved.append(coefficient_of(norm, divisor, descriptor.radius))
                held.write(resolved[-1], noise.block, self._rounding)
            else:
                held.write(coefficients[index], noise.block, self._rounding)
        if coefficients is None:
            coefficients = tuple(torch.stack(resolved).tolist()) if resolved else ()
        _check_finite(coefficients, scale_map.active)
        return coefficients

    def _missing_steps(self, lineage: Lineage) -> Sequence[Step] | None:
        """Return the steps from the current state to a lineage; None if it is no ancestor."""
        if lineage.model_digest != self._model_digest:
            raise IncompatibleError(
                f"the lineage is of model {lineage.model_digest}, "
                f"the weights are of {self._model_digest}",
                field="model",
                remedy="name the model and revision of the run",
            )
        layout = len(self._layout)
        if any(len(step.amplitudes) not in {0, layout} for step in lineage.steps):
            raise IncompatibleError(f"a step needs one amplitude for each of {layout} tensors")
        _scheme(lineage.noise)
        return None if self.state is None else lineage.missing(self.state)

    def _restore_origin(self) -> None:
        if self._origin is None:
            raise PreconditionError(
                "the weights of the base model were replaced", remedy="load the model again"
            )
        self.state = None
        tensors = [held.tensor for held in self._held.values()]
        for held, base in zip(self._held.values(), self._origin(tensors), strict=True):
            held.rebase(base)
        self.state, self._rounding = NO_LINEAGE, Rounding.ONCE

    def _apply_steps(
        self, lineage: Lineage, steps: Sequence[Step], poll: Callable[[], None] | None
    ) -> None:
        """Apply the last steps of a lineage and update `state` after each."""
        scheme, first = _scheme(lineage.noise), len(lineage.steps) - len(steps)
        for step, digest in zip(steps, lineage.digests[first + 1 :], strict=True):
            if poll is not None:
                poll()
            self.state = None
            self._apply_step(step, scheme, lineage.rounding)
            self.state, self._rounding = digest, lineage.rounding
        self.state, self._rounding = lineage.digest, lineage.rounding

    def _apply_step(self, step: Step, scheme: NoiseScheme, rounding: Rounding) -> None:
        for index, held in enumerate(self._held.values()):
            sample = partial(sample_noise, scheme, held)
            if scheme.portable:
                held.advance(_updates(step, index, sample), rounding)
            else:
                whole = _updates(step, index, sample)(Block.whole(held.tensor.shape))
                held.advance(partial(Block.of, tensor=whole), rounding)


def _updates(
    step: Step, index: int, sample: Callable[[int, Block], torch.Tensor]
) -> Callable[[Block], torch.Tensor]:
    return lambda block: step_update(step, index, lambda seed: sample(seed, block))


def _scheme(name: str) -> NoiseScheme:
    try:
        return get_scheme(name)
    except InvalidInputError as error:
        raise IncompatibleError(error.message, field=error.field, remedy=error.remedy) from error


def _check_rank(scheme: NoiseScheme, scale_map: ScaleMap) -> None:
    """Refuse a rank with another scheme than `portable-v1` or with tensors of other shapes."""
    if scale_map.rank is None:
        return
    if scheme.name != PortableNoise.name:
        raise IncompatibleError(f"{scheme.name} has no low-rank noise, only portable-v1 has")
    if others := [scale.name for scale in scale_map.active if len(scale.shape) != 2]:
        raise IncompatibleError(f"{others[0]} is no matrix, so it has no low-rank noise")


def _check_coefficients(descriptor: Descriptor, scale_map: ScaleMap) -> None:
    """Refuse coefficients that are not one finite float32 for each active tensor."""
    coefficients = descriptor.coefficients
    if coefficients is None:
        return
    if len(coefficients) != len(scale_map.active):
        raise CandidateError(
            f"{len(coefficients)} coefficients for {len(scale_map.active)} active tensors"
        )
    _check_finite(coefficients, scale_map.active)
    if torch.tensor(coefficients, dtype=torch.float32).tolist() != list(coefficients):
        raise CandidateError("the coefficients are not float32 numbers")


def _check_finite(coefficients: Sequence[float], scales: Sequence[TensorScale]) -> None:
    for coefficient, scale in zip(coefficients, scales, strict=True):
        if not isfinite(coefficient):
            raise CandidateError(f"the coefficient of {scale.name} is {coefficient}")
