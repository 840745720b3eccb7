"""An engine's weights as a function of a descriptor (docs/architecture.md, "A candidate ...")."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import cast

import torch

from modnorm.checkpoint.layout import Layout, PhysicalTensor
from modnorm.checkpoint.weights import weights_sha256
from modnorm.errors import (
    CandidateError,
    IncompatibleError,
    InvalidInputError,
    PreconditionError,
)
from modnorm.geometry.norms import natural_norm
from modnorm.geometry.scale_map import Norm, ScaleMap, TensorScale
from modnorm.noise import Block, NoiseScheme, get_scheme
from modnorm.noise.portable import PortableNoise
from modnorm.perturbation.coefficients import coefficients_of
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.kernels import fused_weights
from modnorm.perturbation.lineage import NO_LINEAGE, Lineage, Rounding, Step
from modnorm.perturbation.steps import step_update
from modnorm.perturbation.views import HeldTensor, WeightView

__all__ = ["CandidateWeights", "WeightView"]

Origin = Callable[[Iterable[PhysicalTensor]], Iterator[torch.Tensor]]
"""Yields the checkpoint's tensors; they are what they were once it has ended."""


class CandidateWeights:
    """Turns the weights of an engine into any candidate and back, bit for bit.

    Holds one pristine copy of the engine's weights. Candidates are written from it, never added to
    or subtracted from what is there, so neither order nor number of candidates leaves a trace.
    Beyond the copy, `apply` needs one fp32 tensor as large as the largest physical tensor while
    coefficients are unresolved, and a few chunks of fixed size. (The published noise scheme needs
    the large tensor always, and its draw in the weight dtype for a moment.)

    On a GPU with Triton, kernels do the same for the portable scheme, with equal weights for equal
    coefficients (`modnorm.perturbation.kernels`).

    Args:
        layout: All physical tensors, in canonical order.
        views: Physical tensor name -> where the engine keeps it, in disjoint blocks. Blocks of a
            tensor may be a part of it (a tensor-parallel rank); its noise and norm are those of
            the whole tensor all the same.
        model_digest: Digest of the checkpoint that the weights are from.
        dtype: Weight dtype, which candidates are rounded to; that of the views when absent. The
            views may be wider, for an engine that computes in float32.
        kernels: Whether to use kernels where they can be; False compares with the plain version.
        origin: Reads tensors of the checkpoint, to come back to it from a trained state.

    Raises:
        IncompatibleError: the views do not fit the layout.
    """

    @torch.inference_mode()
    def __init__(  # noqa: PLR0913 - all but the first two by keyword
        self,
        layout: Layout,
        views: Mapping[str, Sequence[WeightView]],
        *,
        model_digest: str,
        dtype: torch.dtype | None = None,
        kernels: bool = True,
        origin: Origin | None = None,
    ) -> None:
        if surplus := sorted(set(views) - {tensor.name for tensor in layout}):
            raise IncompatibleError(f"{surplus[0]} is held, but is not a tensor of the model")
        self._layout = layout
        self._model_digest = model_digest
        self._held = {
            tensor.name: HeldTensor(tensor, views.get(tensor.name, ()), dtype) for tensor in layout
        }
        self._busy = False
        self._origin = origin
        self._state: str | None = NO_LINEAGE
        self._rounding = Rounding.ONCE
        addresses = [place for held in self._held.values() for place in held.addresses]
        if len(set(addresses)) != len(addresses):
            raise IncompatibleError("two tensors share memory; name a tied tensor once")
        self._fused = fused_weights(self._held) if kernels else None

    @property
    def has_kernels(self) -> bool:
        """Whether kernels write candidates; their norms sum in another order, for the record."""
        return self._fused is not None

    @property
    def state(self) -> str | None:
        """Digest of the lineage whose end is the pristine copy; None after a failed `rebase`."""
        return self._state

    @torch.inference_mode()
    def rebase(self, lineage: Lineage | None, *, poll: Callable[[], None] | None = None) -> None:
        """Let the end of a lineage be the base of the candidates to come; None for the model.

        Only the steps that are missing are applied, where the state held is on the way.

        Args:
            lineage: What leads there.
            poll: Called before each step; what it raises ends the way at a state that is known.

        Raises:
            PreconditionError: a candidate is held, or the way leads back over the model and
                nothing was given to read it with.
            IncompatibleError: the lineage is of another model, or its noise is not known here.
        """
        target = lineage.digest if lineage else NO_LINEAGE
        if self._busy:
            raise PreconditionError("a candidate is held", remedy="restore the base first")
        if target == self._state:
            return
        steps: Sequence[Step] | None = () if lineage is None else self._missing(lineage)
        if lineage is None or steps is None:
            self._return_to_origin()
        if lineage is not None:
            self._walk(lineage, lineage.steps if steps is None else steps, poll)

    @torch.inference_mode()
    def moments(self) -> tuple[tuple[float, float], ...]:
        """Return mean and unbiased variance of each tensor held, in canonical order.

        Raises:
            PreconditionError: only a shard of some tensor is held.
        """
        found = []
        for held in self._held.values():
            variance, mean = torch.var_mean(held.assemble().to(torch.float32))
            found.append((float(mean), float(variance)))
        return tuple(found)

    @torch.inference_mode()
    def apply(self, descriptor: Descriptor, scale_map: ScaleMap) -> Descriptor:
        """Become exactly the candidate; on any error the base is back before it is raised.

        Each element is `round(fl32(base + fl32(coefficient * z)))`. A coefficient that the
        descriptor does not bring is `float32(R / (s_p * max(norm_p(Z_p), 1e-12)))`, where the norm
        is computed in float32 and the rest in float64 (paper, eq. modular_perturbation).

        Args:
            descriptor: The candidate, resolved or not.
            scale_map: The scale map that it was drawn with.

        Returns:
            The descriptor with its coefficients; unchanged if it was resolved.

        Raises:
            PreconditionError: a candidate is held already.
            IncompatibleError: the scale map is of another candidate, model or layout, or the noise
                scheme is not known here.
            CandidateError: the coefficients do not match the scale map or are not finite.
        """
        if self._busy:
            raise PreconditionError("another candidate is held", remedy="restore the base first")
        self._check_geometry(descriptor, scale_map)
        self._check_state(descriptor)
        _check_coefficients(descriptor, scale_map)
        scheme = _scheme(descriptor.noise)
        self._busy = True
        try:
            return descriptor.resolved(self._write(scheme, descriptor, scale_map))
        except BaseException:
            self.restore()
            raise

    @torch.inference_mode()
    def restore(self) -> None:
        """Become the base again, whatever was held; every tensor is copied back."""
        if self._fused:
            self._fused.restore()
        else:
            for held in self._held.values():
                held.restore()
        self._busy = False

    def is_pristine(self) -> bool:
        """Whether the engine's weights are those of the base, bit for bit."""
        if self._fused:
            return self._fused.is_pristine()
        return all(held.is_pristine() for held in self._held.values())

    def sha256(self) -> str:
        """Return SHA-256 over the current weights, in canonical order and layout.

        One physical tensor at a time is assembled and copied to the host.

        Raises:
            PreconditionError: only a shard of some tensor is held.
        """
        return weights_sha256(self._layout, lambda tensor: self._held[tensor.name].assemble())

    def _write(
        self, scheme: NoiseScheme, descriptor: Descriptor, scale_map: ScaleMap
    ) -> tuple[float, ...]:
        plain = descriptor.noise != PortableNoise.name or self._rounding is Rounding.PUBLISHED
        if self._fused and not plain and self._fused.supports(scale_map):
            found = self._fused.write(
                descriptor.seed, descriptor.radius, scale_map, descriptor.coefficients
            )
        else:
            writer = _Writer(scheme, descriptor, self._rounding)
            found = writer.write(self._held, scale_map.active)
        _check_finite(found, scale_map.active)
        return found

    def _missing(self, lineage: Lineage) -> Sequence[Step] | None:
        """Return the steps to take from the state held; None when it is not on the way."""
        if lineage.model_digest != self._model_digest:
            raise IncompatibleError(
                f"the lineage is of model {lineage.model_digest}, "
                f"the weights are of {self._model_digest}"
            )
        layout = len(self._layout)
        if any(len(step.amplitudes) not in {0, layout} for step in lineage.steps):
            raise IncompatibleError(f"a step has not one amplitude for each of {layout} tensors")
        _scheme(lineage.noise)
        return None if self._state is None else lineage.missing(self._state)

    def _return_to_origin(self) -> None:
        if self._origin is None:
            raise PreconditionError(
                "the base model is not at hand any more", remedy="load the model again"
            )
        self._state = None
        tensors = [held.tensor for held in self._held.values()]
        for held, base in zip(self._held.values(), self._origin(tensors), strict=True):
            held.rebase(base)
        self._state, self._rounding = NO_LINEAGE, Rounding.ONCE

    def _walk(
        self, lineage: Lineage, steps: Sequence[Step], poll: Callable[[], None] | None
    ) -> None:
        """Take the last steps of a lineage, knowing after each what is held."""
        scheme, known = _scheme(lineage.noise), len(lineage.steps) - len(steps)
        for step, digest in zip(steps, lineage.digests[known + 1 :], strict=True):
            if poll is not None:
                poll()
            self._state = None
            self._take(step, scheme, lineage.rounding)
            self._state, self._rounding = digest, lineage.rounding
        self._state, self._rounding = lineage.digest, lineage.rounding

    def _take(self, step: Step, scheme: NoiseScheme, rounding: Rounding) -> None:
        for place, held in enumerate(self._held.values()):
            sample = partial(_sample, scheme, held)
            if scheme.portable:
                held.advance(_updates(step, place, sample), rounding)
            else:
                whole = _updates(step, place, sample)(Block.whole(held.tensor.shape))
                held.advance(partial(_cut, whole), rounding)

    def _check_state(self, descriptor: Descriptor) -> None:
        if self._state is None:
            raise PreconditionError("the state is unknown", remedy="rebase on a lineage")
        if descriptor.lineage != self._state:
            raise IncompatibleError(
                f"the candidate is of state {descriptor.lineage or 'base'}, "
                f"the weights are of {self._state or 'base'}"
            )

    def _check_geometry(self, descriptor: Descriptor, scale_map: ScaleMap) -> None:
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
            raise IncompatibleError("the scale map names other tensors than the model has")


class _Writer:
    """Writes one candidate, finding its coefficients on the way where they are not given."""

    def __init__(self, scheme: NoiseScheme, descriptor: Descriptor, rounding: Rounding) -> None:
        self._scheme = scheme
        self._rounding = rounding
        self._seed = descriptor.seed
        self._radius = descriptor.radius
        self._given = descriptor.coefficients

    def write(
        self, tensors: Mapping[str, HeldTensor], scales: Sequence[TensorScale]
    ) -> tuple[float, ...]:
        """Write all active tensors; return the coefficients in the order of `scales`."""
        if self._given is not None:
            for scale, coefficient in zip(scales, self._given, strict=True):
                held = tensors[scale.name]
                held.write(coefficient, self._noise(held), self._rounding)
            return self._given
        found = [self._resolve_and_write(tensors[scale.name], scale) for scale in scales]
        return tuple(torch.stack(found).tolist()) if found else ()

    def _resolve_and_write(self, held: HeldTensor, scale: TensorScale) -> torch.Tensor:
        """Write one tensor; return its coefficient, 0-d fp32, without waiting for the device."""
        if scale.norm is Norm.UNIT:
            one = torch.ones((), dtype=torch.float32, device=held.device)
            coefficient = self._coefficient(one, scale)
            held.write(coefficient, self._noise(held), self._rounding)
            return coefficient
        whole = self._sample(held, None)
        coefficient = self._coefficient(natural_norm(whole, scale.norm), scale)
        held.write(coefficient, partial(_cut, whole), self._rounding)
        return coefficient

    def _coefficient(self, norm: torch.Tensor, scale: TensorScale) -> torch.Tensor:
        return coefficients_of(norm, cast("float", scale.scale), self._radius)

    def _noise(self, held: HeldTensor) -> Callable[[Block], torch.Tensor]:
        """Return the noise by block, made block by block where the scheme can."""
        if self._scheme.portable:
            return partial(self._sample, held)
        return partial(_cut, self._sample(held, None))

    def _sample(self, held: HeldTensor, block: Block | None) -> torch.Tensor:
        return _sample(self._scheme, held, self._seed, block)


def _updates(
    step: Step, place: int, sample: Callable[[int, Block], torch.Tensor]
) -> Callable[[Block], torch.Tensor]:
    """Return the update of a tensor by block."""
    return lambda block: step_update(step, place, lambda seed: sample(seed, block))


def _sample(scheme: NoiseScheme, held: HeldTensor, seed: int, block: Block | None) -> torch.Tensor:
    return scheme.sample(
        seed,
        held.tensor.name,
        held.tensor.shape,
        dtype=held.dtype,
        device=held.device,
        block=block,
    )


def _cut(whole: torch.Tensor, block: Block) -> torch.Tensor:
    return block.of(whole)


def _scheme(name: str) -> NoiseScheme:
    try:
        return get_scheme(name)
    except InvalidInputError as error:
        raise IncompatibleError(error.message, field=error.field, remedy=error.remedy) from error


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
