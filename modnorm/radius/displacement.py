"""The distance between a perturbed model's outputs and the base's: logits and hidden states."""

import math
from dataclasses import dataclass

import torch

_ROWS = 128
"""Positions whose distributions are in fp32 at once, to bound memory."""


@dataclass(frozen=True, slots=True)
class ModelOutputs:
    """A model's outputs at some positions."""

    logits: torch.Tensor
    """Next-token logits, shape (positions, vocabulary)."""
    states: torch.Tensor
    """Hidden states, shape (states, positions, hidden): the embeddings, then each layer's output.

    The last is the input of the head, after the final norm.
    """

    def to(self, device: torch.device) -> "ModelOutputs":
        """Return the outputs on a device."""
        return ModelOutputs(
            self.logits.to(device, non_blocking=True), self.states.to(device, non_blocking=True)
        )


@dataclass(frozen=True, slots=True)
class Displacement:
    """Distance between one perturbed model and the base, over all compared positions."""

    kl: float
    """Mean over positions of the symmetric KL divergence of next-token distributions, in nats."""
    hidden: float
    """Relative RMS of the last hidden state: sqrt(sum |h' - h|^2 / sum |h|^2)."""
    hidden_rms: float
    """RMS of the change of the last hidden state, over positions and coordinates."""
    states: tuple[float, ...]
    """Relative RMS of every hidden state; the last is `hidden`."""

    @property
    def is_finite(self) -> bool:
        """Whether every figure is a number."""
        return all(map(math.isfinite, (self.kl, self.hidden, self.hidden_rms, *self.states)))


def symmetric_kl(base: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return 1/2 [KL(p || q) + KL(q || p)] by position: exactly symmetric, 0 on equal logits.

    The sum of both directions is sum (p - q)(log p - log q), whose terms are never negative.

    Args:
        base: Logits, shape (positions, vocabulary); probabilities are computed in fp32.
        other: Logits of the same shape.

    Returns:
        Nats, fp64 of shape (positions,).
    """
    pairs = zip(torch.split(base, _ROWS), torch.split(other, _ROWS), strict=True)
    return torch.cat([_symmetric_kl(one, two) for one, two in pairs])


def _symmetric_kl(base: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    log_p, log_q = base.float().log_softmax(-1), other.float().log_softmax(-1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1).double() / 2


class DisplacementSums:
    """Sums over the positions of several batches, in float64."""

    def __init__(self) -> None:
        self._positions = 0
        self._coordinates = 0
        self._kl = 0.0
        self._moved: list[float] = []
        self._length: list[float] = []

    @torch.inference_mode()
    def add(self, base: ModelOutputs, other: ModelOutputs) -> None:
        """Add the positions of one batch.

        Args:
            base: Outputs of the unperturbed model.
            other: Outputs of the perturbed model at the same positions, on the same device.
        """
        self._positions += len(base.logits)
        self._coordinates += base.states[-1].numel()
        self._kl += float(symmetric_kl(base.logits, other.logits).sum())
        moved = [_squares(two, one) for one, two in zip(base.states, other.states, strict=True)]
        length = [_squares(one) for one in base.states]
        self._moved = _added(self._moved, moved)
        self._length = _added(self._length, length)

    def displacement(self) -> Displacement:
        """Return the figures over all added positions, at least one."""
        states = [
            math.sqrt(moved / length) if length else math.nan
            for moved, length in zip(self._moved, self._length, strict=True)
        ]
        return Displacement(
            kl=self._kl / self._positions,
            hidden=states[-1],
            hidden_rms=math.sqrt(self._moved[-1] / self._coordinates),
            states=tuple(states),
        )


def _squares(values: torch.Tensor, minus: torch.Tensor | None = None) -> float:
    """Return the sum of squares of values, or of their difference from `minus`."""
    wide = values.double()
    return float((wide if minus is None else wide - minus.double()).square().sum())


def _added(sums: list[float], more: list[float]) -> list[float]:
    return [a + b for a, b in zip(sums, more, strict=True)] if sums else more
