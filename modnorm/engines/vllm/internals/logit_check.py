"""A check of all logits of vLLM's model, at one kernel launch a step."""

from collections.abc import Callable
from typing import Any

import torch

from modnorm.engines.vllm.internals.register_entry import RegisterEntry, Stage

_Logits = Callable[..., object]
_MAKERS = ("compute_logits", "compute_logits_local")
"""Methods of vLLM's models that make logits, outside its CUDA graphs."""
_SUMS = 64
"""Steps whose sums are kept apart; adding them up is another launch."""


class LogitCheck:
    """Tells whether all logits were finite.

    It keeps the sum of each step's logits in float32: NaN and infinity stay in it. Logits beyond
    1e30 overflow it and count as not finite.

    Args:
        device: The model's device.
    """

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(_SUMS, device=device)
        self._places = self._sums.unbind()
        self._next = 0
        self._before = torch.zeros((), device=device)
        """Of all steps whose sums were overwritten."""
        self._seen = torch.zeros((), pin_memory=device.type == "cuda")

    def wrap(self, model: torch.nn.Module) -> None:
        """See all logits that a model makes from now on."""
        for name in _MAKERS:
            if (make := getattr(model, name, None)) is not None:
                object.__setattr__(model, name, self._checking(make))

    def has_finite_logits(self) -> bool:
        """Whether all logits since the last `forget` were finite; waits for them."""
        return bool(self._all().isfinite())

    def had_finite_logits(self) -> bool:
        """Whether they were at the last call of this method; waits for nothing.

        The device copies to the host in the order of the steps. The copy of the last call is
        complete when the answers of later steps have arrived.
        """
        sound = bool(self._seen.isfinite())
        self._seen.copy_(self._all(), non_blocking=True)
        return sound

    def forget(self) -> None:
        """Start anew."""
        for kept in (self._sums, self._before, self._seen):
            kept.zero_()

    def see(self, logits: torch.Tensor) -> None:
        """Add the logits of a step, of any shape and floating dtype."""
        if self._next == _SUMS:
            self._before += self._sums.sum()
            self._next = 0
        every = tuple(range(logits.ndim))
        torch.sum(logits, every, dtype=torch.float32, out=self._places[self._next])
        self._next += 1

    def _all(self) -> torch.Tensor:
        return self._before + self._sums.sum()

    def _checking(self, make: _Logits) -> _Logits:
        def checked(*given: object, **named: object) -> object:
            logits = make(*given, **named)
            if isinstance(logits, torch.Tensor) and logits.numel():
                self.see(logits)
            return logits

        return checked


def _runner_calls_replacements(worker: Any) -> bool:  # noqa: ANN401 - vLLM's worker, extended
    """The model runner finds a replaced method of the model, through CUDA-graph wrappers too."""
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
    purpose="Logits that are not finite fail the candidate: their maker is wrapped.",
    stage=Stage.WORKER,
    vllm_names=(" | ".join(f".model_runner.model.{maker}" for maker in _MAKERS),),
    otherwise="use the transformers engine for this model",
    removable_when="vLLM reports logits that are not finite",
    self_test=_runner_calls_replacements,
)
