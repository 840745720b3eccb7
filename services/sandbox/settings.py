"""Settings of the sandbox service."""

import os

from pydantic import Field

from services.common.settings import ServiceSettings


class SandboxSettings(ServiceSettings):
    """Settings of the sandbox."""

    bind_address: str = "127.0.0.1:50055"
    concurrency: int = Field(default_factory=lambda: len(os.sched_getaffinity(0)), ge=1, le=256)
    """Programs that run at a time; others wait. One a core by default."""
