"""Settings of the client and the command line, from the environment."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from modnorm.wire.connection import ConnectionSettings, GivenPath, split_paths

MAX_TIMEOUT = 86_400.0
"""Seconds of a day: gRPC takes a deadline without end for one that has passed."""


class ClientSettings(ConnectionSettings):
    """What a user sets once instead of at every command (`MODNORM_SERVER=lab:50051`)."""

    server: str = "127.0.0.1:50051"
    """Address of the aggregator, for commands that talk to a lab."""
    timeout: float = Field(default=30.0, gt=0, le=MAX_TIMEOUT, allow_inf_nan=False)
    """Seconds that one call may take."""
    cache_dir: GivenPath = Path.home() / ".cache" / "modnorm"
    """Where embedded runs keep what does not depend on the run: profiles, and fetched data."""
    data_roots: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(split_paths)] = ()
    """Where named splits are looked for too, separated as in PATH."""

    @property
    def fetched_folder(self) -> Path:
        """Where data are fetched to."""
        return self.cache_dir / "data"

    @property
    def split_folders(self) -> tuple[Path, ...]:
        """Where named splits are looked for, in order."""
        return (self.fetched_folder, *self.data_roots)


def calm_threads() -> None:
    """Let idle OpenMP threads spin for some 0.1 ms before they sleep, unless told otherwise.

    An embedded lab shares its cores with the inference engine. Threads that spin for long take
    them from the services; threads that never spin wake too late for a small model's many short
    operations. OpenMP reads this when torch is loaded, so it is set before.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
