"""Settings of the client and the command line, from the environment."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from modnorm.errors import InvalidInputError
from modnorm.host import default_cache
from modnorm.wire.connection import ConnectionSettings, GivenPath, split_paths

MAX_TIMEOUT = 86_400.0
"""Seconds of a day; gRPC treats an infinite deadline as one that has passed."""


class ClientSettings(ConnectionSettings):
    """Settings of a user, instead of options (`MODNORM_SERVER=lab:50051`)."""

    server: str = "127.0.0.1:50051"
    """Address of the aggregator, for commands that talk to a lab."""
    timeout: float = Field(default=30.0, gt=0, le=MAX_TIMEOUT, allow_inf_nan=False)
    """Seconds that one call may take."""
    cache_dir: GivenPath | None = None
    """Profiles and fetched data, shared by embedded runs; by default in `~/.cache/modnorm`."""
    data_roots: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(split_paths)] = ()
    """Further folders of named splits, separated as in PATH."""

    @property
    def cache(self) -> Path:
        return self.cache_dir or default_cache()

    @property
    def fetched_folder(self) -> Path:
        return self.cache / "data"

    def check_cache(self) -> None:
        """Refuse a cache directory that cannot be written; this check writes nothing."""
        cache = self.cache
        there = next(each for each in (cache, *cache.absolute().parents) if os.path.lexists(each))
        is_folder = there.is_dir()
        if is_folder and os.access(there, os.W_OK | os.X_OK):
            return
        raise InvalidInputError(
            f"cannot write {cache}: {there} "
            f"{'is protected against writing' if is_folder else 'is no directory'}",
            field="MODNORM_CACHE_DIR",
            remedy="set it to a directory that can be written",
        )

    @property
    def split_folders(self) -> tuple[Path, ...]:
        """Folders of named splits, in order of search; without a home none of fetched data."""
        try:
            return (self.fetched_folder, *self.data_roots)
        except InvalidInputError:
            return self.data_roots


def calm_threads() -> None:
    """Let idle OpenMP threads spin for 0.1 ms before they sleep, if the environment sets nothing.

    An embedded lab shares its cores with the inference engine. Threads that spin for long take
    them from the services; threads that never spin wake too late for a small model's many short
    operations. A spin takes 50 ns on Intel since Skylake, less elsewhere. OpenMP reads this when
    torch is loaded, so it is set before.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
