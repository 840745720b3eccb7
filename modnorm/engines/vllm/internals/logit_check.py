"""Checks all logits of vLLM's model, with one kernel launch per step."""

from collections.abc import Callable
from typing import Any

import torch

from modnorm.engines.vllm.internals.register_entry import RegisterEntry, Stage

_Logits = Callable[..., object]
_MAKERS = ("compute_logits", "compute_logits_local")
"""Methods of vLLM's models that compute logits, outside its CUDA graphs."""
_SUMS = 64
"""Steps whose sums are stored separately; adding them up takes another launch."""


class LogitCheck:
    """Records whether all logits were finite.

    It stores the sum of each step's logits in float32, which preserves NaN and infinity. Logits
    beyond 1e30 overflow the sum and count as not finite.
    """

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(_SUMS, device=device)
        self._sum_views = self._sums.unbind()
        self._next = 0
        self._before = torch.zeros((), device=device)
        """Sum over all steps whose entries were overwritten."""
        self._seen = torch.zeros((), pin_memory=device.type == "cuda")

    def wrap(self, model: torch.nn.Module) -> None:
        """Check all logits that a model computes from now on."""
        for name in _MAKERS:
            if (make := getattr(model, name, None)) is not None:
                object.__setattr__(model, name, self._checking(make))

    def has_finite_logits(self) -> bool:
        """Whether all logits since the last `forget` are finite; waits for them."""
        return bool(self._all().isfinite())

    def had_finite_logits(self) -> bool:
        """Whether the logits were finite at the last call of this method; does not wait.

        The device copies to the host in the order of the steps. The copy of the last call is
        complete when the answers of later steps have arrived.
        """
        finite = bool(self._seen.isfinite())
        self._seen.copy_(self._all(), non_blocking=True)
        return finite

    def forget(self) -> None:
        for sums in (self._sums, self._before, self._seen):
            sums.zero_()

    def add(self, logits: torch.Tensor) -> None:
        """Add the logits of a step, of any shape and floating dtype."""
        if self._next == _SUMS:
            self._before += self._sums.sum()
            self._next = 0
        axes = tuple(range(logits.ndim))
        torch.sum(logits, axes, dtype=torch.float32, out=self._sum_views[self._next])
        self._next += 1

    def _all(self) -> torch.Tensor:
        return self._before + self._sums.sum()

    def _checking(self, make: _Logits) -> _Logits:
        def checked(*arguments: object, **named: object) -> object:
            logits = make(*arguments, **named)
            if isinstance(logits, torch.Tensor) and logits.numel():
                self.add(logits)
            return logits

        return checked


def _runner_calls_replacements(worker: Any) -> bool:  # noqa: ANN401 - vLLM's worker, extended
    """The model runner calls a replaced method of the model, also through CUDA-graph wrappers."""
    model, runner = worker.get_model(), worker.model_runner
    name = next(name for name in _MAKERS if hasattr(model, name))
    marker = object()
    object.__setattr__(model, name, marker)
    try:
        return getattr(runner.model, name) is marker
    finally:
        object.__delattr__(model, name)


LOGITS = RegisterEntry(
    name="logits",
    purpose="Wraps the method that computes logits, to fail candidates with NaN or infinity.",
    stage=Stage.WORKER,
    vllm_names=(" | ".join(f".model_runner.model.{maker}" for maker in _MAKERS),),
    remedy="use the transformers engine for this model",
    removable_when="vLLM reports logits that are not finite",
    self_test=_runner_calls_replacements,
)
