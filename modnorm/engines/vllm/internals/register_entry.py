"""The entry of the register: one place where we reach into vLLM."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from operator import attrgetter
from typing import Any

from modnorm.errors import IncompatibleError


class Kind(StrEnum):
    """The consequence of a missing entry."""

    REQUIRED = "required"
    """Correctness needs it: the engine is refused."""
    OPTIMISATION = "optimisation"
    """It only saves time: it is switched off, logged and recorded."""


class Stage(StrEnum):
    """The moment at which the register is asked, and the subject of probes and self-tests."""

    PROCESS = "process"
    """Before vLLM starts; no subject."""
    CONFIG = "config"
    """With vLLM's `VllmConfig`."""
    ENGINE = "engine"
    """With the running `LLMEngine`, before its first request."""
    WORKER = "worker"
    """With vLLM's worker, once it has loaded the model."""


TESTED = "0.26 to 0.33"
"""Versions that were run with an entry unless it says otherwise."""


def _always(_: object) -> bool:
    return True


@dataclass(frozen=True, kw_only=True, eq=False)
class RegisterEntry:
    """One use of vLLM beyond its public interface."""

    name: str
    """As recorded with scores and used in `Overrides.without`."""
    purpose: str
    """The use, and its reason."""
    stage: Stage
    vllm_names: tuple[str, ...]
    """Names in vLLM: `module:attribute`, or an attribute of the subject. `|` separates the names
    that different versions have."""
    removable_when: str
    self_test: Callable[[Any], bool]
    """Returns whether vLLM behaves as the code assumes. Its docstring is in the documentation."""
    kind: Kind = Kind.REQUIRED
    versions: str = TESTED
    """Versions of vLLM that were run with it."""
    otherwise: str = "use a version of vLLM from docs/vllm.md"
    """The remedy where it is required, the fallback where it is an optimisation."""
    applies: Callable[[Any], bool] = _always
    """Returns whether this start uses it at all."""

    def is_used(self, subject: object) -> bool:
        """Whether this start uses it, also where a name is missing: the probe tells which."""
        try:
            return self.applies(subject)
        except (ImportError, AttributeError):
            return True

    def missing_name(self, subject: object) -> str | None:
        """Return the first name that this vLLM lacks; None where it has all of them."""
        for touch in self.vllm_names:
            if not any(_exists(name.strip(), subject) for name in touch.split("|")):
                return touch
        return None

    def require(self, subject: object = None) -> None:
        """Refuse a vLLM that lacks a name.

        Raises:
            IncompatibleError: it does.
        """
        if missing := self.missing_name(subject):
            raise self.refusal(f"it has no {missing}")

    def refusal(self, reason: str) -> IncompatibleError:
        """Return the error of an engine that is refused."""
        return IncompatibleError(
            f"this vLLM has no {self.name} that is known: {reason}",
            field="engine.name",
            remedy=self.otherwise,
        )


def resolve(name: str, subject: object = None) -> Any:  # noqa: ANN401 - whatever vLLM has there
    """Return the object of a name in `RegisterEntry.vllm_names`.

    Modules of optimisations use it in place of an import, which would refuse the engine.
    """
    module, _, path = name.rpartition(":")
    return attrgetter(path.removeprefix("."))(import_module(module) if module else subject)


def _exists(name: str, subject: object) -> bool:
    try:
        resolve(name, subject)
    except (ImportError, AttributeError):
        return False
    return True
