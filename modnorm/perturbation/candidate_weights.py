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


class CandidateWriter:
    """Writes one candidate, and resolves its coefficients if necessary."""

    def __init__(
        self, scheme: NoiseScheme, descriptor: Descriptor, rounding: Rounding, rank: int | None
    ) -> None:
        self._scheme = scheme
        self._rank = rank
        self._rounding = rounding
        self._seed = descriptor.seed
        self._radius = descriptor.radius
        self._coefficients = descriptor.coefficients

    def write(
        self, tensors: Mapping[str, HeldTensor], scales: Sequence[TensorScale]
    ) -> tuple[float, ...]:
        """Write all active tensors; return the coefficients in the order of `scales`."""
        if self._coefficients is not None:
            for scale, coefficient in zip(scales, self._coefficients, strict=True):
                held = tensors[scale.name]
                held.write(coefficient, self._noise(held), self._rounding)
            return self._coefficients
        resolved = [self._resolve_and_write(tensors[scale.name], scale) for scale in scales]
        return tuple(torch.stack(resolved).tolist()) if resolved else ()

    def _resolve_and_write(self, held: HeldTensor, scale: TensorScale) -> torch.Tensor:
        """Write one tensor; return its coefficient, 0-d fp32.

        With noise of full rank it does not wait for the device.
        """
        if self._rank is not None:
            noise = self._low_rank(held, self._rank)
            coefficient = self._coefficient(noise.norm(scale.norm), scale)
            held.write(coefficient.item(), noise.block, self._rounding)
            return coefficient
        if scale.norm is Norm.UNIT:
            one = torch.ones((), dtype=torch.float32, device=held.device)
            coefficient = self._coefficient(one, scale)
            held.write(coefficient, self._noise(held), self._rounding)
            return coefficient
        whole = self._sample(held, None)
        coefficient = self._coefficient(natural_norm(whole, scale.norm), scale)
        held.write(coefficient, partial(cut_noise, whole), self._rounding)
        return coefficient

    def _coefficient(self, norm: torch.Tensor, scale: TensorScale) -> torch.Tensor:
        return coefficient_of(norm, cast("float", scale.scale), self._radius)

    def _noise(self, held: HeldTensor) -> Callable[[Block], torch.Tensor]:
        """Return the noise by block; a portable scheme generates each block alone."""
        if self._rank is not None:
            return self._low_rank(held, self._rank).block
        if self._scheme.portable:
            return partial(self._sample, held)
        return partial(cut_noise, self._sample(held, None))

    def _low_rank(self, held: HeldTensor, rank: int) -> LowRankNoise:
        return LowRankNoise.draw(held.tensor, rank, seed=self._seed, device=held.device)

    def _sample(self, held: HeldTensor, block: Block | None) -> torch.Tensor:
        return sample_noise(self._scheme, held, self._seed, block)


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


def cut_noise(whole: torch.Tensor, block: Block) -> torch.Tensor:
    return block.of(whole)


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
        self._layout = layout
        self._model_digest = model_digest
        self._held = {
            tensor.name: HeldTensor(tensor, views[tensor.name], dtype) for tensor in layout
        }
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
        writer = CandidateWriter(scheme, descriptor, self._rounding, scale_map.rank)
        coefficients = writer.write(self._held, scale_map.active)
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
                held.advance(partial(cut_noise, whole), rounding)


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
