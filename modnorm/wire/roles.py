"""What tokens may be used for."""

from enum import StrEnum

DEFAULT_TENANT = "default"


class Role(StrEnum):
    """What a token may be used for."""

    SUBMIT = "submit"
    """Create and cancel experiments of its tenant."""
    READ = "read"
    """See the experiments of its tenant."""
    OPERATE = "operate"
    """See and cancel the experiments of all tenants."""
    WORKER = "worker"
    """Evaluate: lease jobs, report results, run programs in the sandbox."""
    INTERNAL = "internal"
    """The aggregator towards calibrator, sampler and sandbox."""
