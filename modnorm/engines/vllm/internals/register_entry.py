"""An entry of the register: one use of vLLM internals."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from operator import attrgetter
from typing import Any

from modnorm.errors import IncompatibleError


class Stage(StrEnum):
    """The moment of a check, which determines the subject of probes and self-tests."""

    PROCESS = "process"
    """Before vLLM starts; no subject."""
    CONFIG = "config"
    """With vLLM's `VllmConfig`."""
    ENGINE = "engine"
    """With the running `LLMEngine`, before its first request."""
    WORKER = "worker"
    """With vLLM's worker, after it has loaded the model."""


TESTED = "0.26 to 0.33"
"""Versions tested with an entry, unless the entry lists others."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RegisterEntry:
    """One use of vLLM beyond its public interface."""

    name: str
    purpose: str
    """The use, and its reason."""
    stage: Stage
    vllm_names: tuple[str, ...]
    """Names in vLLM: `module:attribute`, or an attribute of the subject. `|` separates the names
    in different versions."""
    removable_when: str
    self_test: Callable[[Any], bool] = lambda _: True
    """Whether vLLM behaves as the code assumes, if its names do not tell. The printed register
    shows its docstring."""
    versions: str = TESTED
    """Tested versions of vLLM."""
    remedy: str = "use a version of vLLM from docs/vllm.md"
    applies: Callable[[Any], bool] = lambda _: True
    """Whether this start uses the entry at all."""

    def is_used(self, subject: object) -> bool:
        """Whether this start uses the entry; True if a missing name prevents the answer."""
        try:
            return self.applies(subject)
        except (ImportError, AttributeError):
            return True

    def missing_name(self, subject: object) -> str | None:
        """Return the first name that this vLLM lacks; None if it has all."""
        for names in self.vllm_names:
            if not any(_exists(name.strip(), subject) for name in names.split("|")):
                return names
        return None

    def require(self, subject: object = None) -> None:
        if missing := self.missing_name(subject):
            raise self.refusal(f"it has no {missing}")

    def refusal(self, reason: str) -> IncompatibleError:
        """Return the error that refuses the engine."""
        return IncompatibleError(
            f"this vLLM does not support {self.name}: {reason}",
            field="engine.name",
            remedy=self.remedy,
        )


def resolve(name: str, subject: object = None) -> Any:  # noqa: ANN401 - vLLM's object
    """Return the object of a name in `RegisterEntry.vllm_names`.

    Drafts use it instead of an import: a failed import would refuse engines without drafts too.
    """
    module, _, path = name.rpartition(":")
    return attrgetter(path.removeprefix("."))(import_module(module) if module else subject)


def _exists(name: str, subject: object) -> bool:
    try:
        resolve(name, subject)
    except (ImportError, AttributeError):
        return False
    return True
