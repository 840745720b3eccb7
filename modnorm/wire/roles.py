"""Roles of tokens."""

from enum import StrEnum

DEFAULT_TENANT = "default"


class Role(StrEnum):
    """A permission of a token."""

    SUBMIT = "submit"
    """Create and cancel experiments of its tenant, and predict with them."""
    READ = "read"
    """See the experiments of its tenant."""
    OPERATE = "operate"
    """See and cancel the experiments of all tenants."""
    WORKER = "worker"
    """Evaluate: lease jobs, report results, run programs in the sandbox."""
    INTERNAL = "internal"
    """Calls of the aggregator to calibrator, sampler and sandbox."""
