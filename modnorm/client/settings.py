"""Settings of the client and the command line, from the environment."""

import os
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ClientSettings(BaseSettings):
    """What a user sets once instead of at every command (`MODNORM_SERVER=lab:50051`)."""

    model_config = SettingsConfigDict(env_prefix="MODNORM_", frozen=True)

    server: str = "127.0.0.1:50051"
    """Address of the aggregator, for commands that talk to a lab."""
    timeout: float = Field(default=30.0, gt=0)
    """Seconds that one call may take."""
    cache_dir: Path = Path.home() / ".cache" / "modnorm"
    """Where embedded runs keep what does not depend on the run, calibrated profiles above all."""


def calm_threads() -> None:
    """Let idle OpenMP threads spin for some 0.1 ms before they sleep, unless told otherwise.

    An embedded lab shares its cores with the inference engine. Threads that spin for long take
    them from the services; threads that never spin wake too late for a small model's many short
    operations. OpenMP reads this when torch is loaded, so it is set before.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
