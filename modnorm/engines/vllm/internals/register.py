"""The register of vLLM internals, and the policy for missing ones.

`python -m modnorm.engines.vllm.internals.register` prints it.
"""

import logging
from collections.abc import Collection, Sequence

from modnorm.engines.vllm.internals.drafting import DRAFT_METHOD, DRAFT_VERIFICATION, DRAFTER
from modnorm.engines.vllm.internals.interfaces import INTERFACES
from modnorm.engines.vllm.internals.layers import LAYERS, LINEAR_WEIGHTS
from modnorm.engines.vllm.internals.logit_check import LOGITS
from modnorm.engines.vllm.internals.message_queues import QUEUE_CONTEXTS, QUEUE_WAITS
from modnorm.engines.vllm.internals.register_entry import Kind, RegisterEntry, Stage
from modnorm.engines.vllm.internals.stepper import OUTPUT_GATHERING
from modnorm.engines.vllm.internals.worker_start import WORKER_ERRORS, WORKER_START

REGISTER: Sequence[RegisterEntry] = (
    OUTPUT_GATHERING,
    LAYERS,
    LOGITS,
    LINEAR_WEIGHTS,
    QUEUE_CONTEXTS,
    QUEUE_WAITS,
    WORKER_START,
    WORKER_ERRORS,
    DRAFT_METHOD,
    DRAFTER,
    DRAFT_VERIFICATION,
    *INTERFACES,
)
OPTIMISATIONS = frozenset(entry.name for entry in REGISTER if entry.kind is Kind.OPTIMISATION)

_LOG = logging.getLogger(__name__)


def check_stage(
    stage: Stage, subject: object = None, without: Collection[str] = ()
) -> frozenset[str]:
    """Check all entries of a stage and return the names of usable optimisations."""
    entries = [entry for entry in REGISTER if entry.stage is stage]
    usable = [entry for entry in entries if _is_usable(entry, subject, without)]
    return frozenset(entry.name for entry in usable if entry.kind is Kind.OPTIMISATION)


def _is_usable(entry: RegisterEntry, subject: object, without: Collection[str]) -> bool:
    if not entry.is_used(subject):
        return False
    if reason := _fault(entry, subject, without):
        if entry.kind is Kind.REQUIRED:
            raise entry.refusal(reason)
        _LOG.warning("vLLM runs without %s (%s): %s", entry.name, reason, entry.otherwise)
    return not reason


def _fault(entry: RegisterEntry, subject: object, without: Collection[str]) -> str:
    """Return the reason why an entry cannot be used; empty if it can."""
    if entry.kind is Kind.OPTIMISATION and entry.name in without:
        return "switched off"
    if missing := entry.missing_name(subject):
        return f"it has no {missing}"
    try:
        return "" if entry.self_test(subject) else "the self-test failed"
    except Exception as error:  # noqa: BLE001 - internals that changed may raise anything
        return f"the self-test failed: {type(error).__name__}: {error}"


def as_table(kind: Kind) -> str:
    """Return the entries of a kind as a table in Markdown."""
    last = "remedy" if kind is Kind.REQUIRED else "fallback"
    heads = ("name", "purpose", "names in vLLM", "self-test", "versions", last, "removable when")
    rows = [
        (
            (
                f"`{entry.name}`",
                entry.purpose.removesuffix("."),
                ", ".join(
                    " or ".join(map(_short, names.split(" | "))) for names in entry.vllm_names
                ),
                (entry.self_test.__doc__ or "").strip().removesuffix("."),
                entry.versions,
                entry.otherwise,
                entry.removable_when,
            )
        )
        for entry in REGISTER
        if entry.kind is kind
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows))


def _short(name: str) -> str:
    """Return a name without its module or owner."""
    module, _, path = name.rpartition(":")
    return f"`{path if module else path.rpartition('.')[2]}`"


if __name__ == "__main__":
    print(*map(as_table, (Kind.OPTIMISATION, Kind.REQUIRED)), sep="\n\n")  # noqa: T201 - its output
