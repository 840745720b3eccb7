"""Settings of the client and the command line, from the environment."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from modnorm.client.channel import Credentials


def split_paths(value: object) -> object:
    """Split `/a:/b` into paths; an empty text is no path."""
    if isinstance(value, str):
        return tuple(path for path in value.split(os.pathsep) if path)
    return value


def _refuse_empty(value: object) -> object:
    """Refuse what would be the current directory."""
    if value == "":
        raise PydanticCustomError("empty_path", "is empty: name a path, or leave it unset")
    return value


GivenPath = Annotated[Path, BeforeValidator(_refuse_empty)]
"""A path. An empty text is none, and not taken for the default either: that of a certificate or
of a file of tokens is to do without."""


class ConnectionSettings(BaseSettings):
    """What a caller shows to servers; services are callers, too."""

    # Inputs are not repeated in errors: some are secrets.
    model_config = SettingsConfigDict(
        env_prefix="MODNORM_", frozen=True, hide_input_in_errors=True
    )

    token: SecretStr = SecretStr("")
    """Bearer token, as `modnorm token create` printed it."""
    token_file: GivenPath | None = None
    """File that holds the token, read at every call; instead of `token`."""
    tls_ca: GivenPath | None = None
    """Certificates of the authorities that the other side's must be of, PEM; turns TLS on."""
    tls_cert: GivenPath | None = None
    """Own certificate chain, PEM."""
    tls_key: GivenPath | None = None
    """Private key of `tls_cert`, PEM."""

    @property
    def credentials(self) -> Credentials:
        """What channels are opened with."""
        return Credentials(
            token=self.token,
            token_file=self.token_file,
            tls_ca=self.tls_ca,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
        )


class ClientSettings(ConnectionSettings):
    """What a user sets once instead of at every command (`MODNORM_SERVER=lab:50051`)."""

    server: str = "127.0.0.1:50051"
    """Address of the aggregator, for commands that talk to a lab."""
    timeout: float = Field(default=30.0, gt=0)
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
