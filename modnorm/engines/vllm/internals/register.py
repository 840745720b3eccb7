"""The register of vLLM internals; a missing one refuses the engines that use it.

`python -m modnorm.engines.vllm.internals.register` prints it.
"""

from collections.abc import Sequence

from modnorm.engines.vllm.internals.drafting import DRAFT_METHOD, DRAFT_VERIFICATION, DRAFTER
from modnorm.engines.vllm.internals.interfaces import INTERFACES
from modnorm.engines.vllm.internals.layers import LAYERS, LINEAR_WEIGHTS
from modnorm.engines.vllm.internals.logit_check import LOGITS
from modnorm.engines.vllm.internals.message_queues import QUEUE_CONTEXTS, QUEUE_WAITS
from modnorm.engines.vllm.internals.register_entry import RegisterEntry, Stage
from modnorm.engines.vllm.internals.worker_start import WORKER_ERRORS, WORKER_START

REGISTER: Sequence[RegisterEntry] = (
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


def check_stage(stage: Stage, subject: object = None) -> None:
    """Refuse the engine if an entry of the stage that this start uses has a fault."""
    for entry in REGISTER:
        if entry.stage is stage and entry.is_used(subject) and (fault := _fault(entry, subject)):
            raise entry.refusal(fault)


def _fault(entry: RegisterEntry, subject: object) -> str:
    """Return the reason why an entry cannot be used; empty if it can."""
    if missing := entry.missing_name(subject):
        return f"it has no {missing}"
    try:
        return "" if entry.self_test(subject) else "the self-test failed"
    except Exception as error:  # noqa: BLE001 - internals that changed may raise anything
        return f"the self-test failed: {type(error).__name__}: {error}"


def as_table() -> str:
    """Return the register as a table in Markdown."""
    heads = ("name", "purpose", "vLLM names", "self-test", "versions", "remedy", "removable when")
    rows = [
        (
            f"`{entry.name}`",
            entry.purpose.removesuffix("."),
            ", ".join(" or ".join(map(_short, names.split(" | "))) for names in entry.vllm_names),
            (entry.self_test.__doc__ or "").strip().removesuffix("."),
            entry.versions,
            entry.remedy,
            entry.removable_when,
        )
        for entry in REGISTER
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows))


def _short(name: str) -> str:
    """Return a name without its module or owner."""
    module, _, path = name.rpartition(":")
    return f"`{path if module else path.rpartition('.')[2]}`"


if __name__ == "__main__":
    print(as_table())  # noqa: T201 - its output
