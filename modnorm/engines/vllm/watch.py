"""A watch on the logits of vLLM's model, at one launch a step."""

from collections.abc import Callable

import torch

_Logits = Callable[..., object]
_MAKERS = ("compute_logits", "compute_logits_local")
"""Methods of vLLM's models that make logits, outside its CUDA graphs."""
_SUMS = 64
"""Steps whose sums are kept apart; adding them up is a launch more."""


class LogitWatch:
    """Tells whether all logits were finite.

    What is kept of a step is the sum of its logits in float32: NaN and infinity stay in it. It
    would overflow on logits beyond 1e30 as well, which count as not finite.

    Args:
        device: Where the model is.
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
                object.__setattr__(model, name, self._watching(make))

    def is_sound(self) -> bool:
        """Whether all logits since the last `forget` were finite; waits for them."""
        return bool(self._all().isfinite())

    def was_sound(self) -> bool:
        """Whether they were when this was asked last; waits for nothing.

        Copies to the host are made in the order of the steps: the one that was begun then is over
        when the answers of later steps are there.
        """
        sound = bool(self._seen.isfinite())
        self._seen.copy_(self._all(), non_blocking=True)
        return sound

    def forget(self) -> None:
        """Begin anew."""
        for kept in (self._sums, self._before, self._seen):
            kept.zero_()

    def see(self, logits: torch.Tensor) -> None:
        """Take in the logits of a step, of any shape and floating dtype."""
        if self._next == _SUMS:
            self._before += self._sums.sum()
            self._next = 0
        every = tuple(range(logits.ndim))
        torch.sum(logits, every, dtype=torch.float32, out=self._places[self._next])
        self._next += 1

    def _all(self) -> torch.Tensor:
        return self._before + self._sums.sum()

    def _watching(self, make: _Logits) -> _Logits:
        def watched(*given: object, **named: object) -> object:
            logits = make(*given, **named)
            if isinstance(logits, torch.Tensor) and logits.numel():
                self.see(logits)
            return logits

        return watched
