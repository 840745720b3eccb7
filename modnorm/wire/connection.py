"""Settings of a caller's connection, from the environment."""

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, SecretStr, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from modnorm.host import is_utf8
from modnorm.wire.credentials import Credentials

_PROXY = re.compile(r"http://([^@/\s]+@)?(\[[0-9a-fA-F:.]+\]|[^:@/\s]+)(:\d{1,5})?/?")


def split_paths(value: object) -> object:
    """Split `/a:/b` into paths; an empty text is no path."""
    if isinstance(value, str):
        return tuple(path for path in value.split(os.pathsep) if path)
    return value


def _refuse_empty(value: object) -> object:
    """Refuse an empty path, which would mean the current directory."""
    if value == "":
        raise PydanticCustomError("empty_path", "is empty: name a path, or leave it unset")
    return value


def _check_proxy(proxy: SecretStr) -> SecretStr:
    """Refuse what gRPC would ignore, and so call directly."""
    url = proxy.get_secret_value()
    if url and not _PROXY.fullmatch(url):
        raise PydanticCustomError("proxy", "is not http://HOST:PORT")
    return proxy


GivenPath = Annotated[Path, BeforeValidator(_refuse_empty)]
"""A path that is not empty. An empty text is no default either, since the default of a certificate
or a token file is to have none."""


class ConnectionSettings(BaseSettings):
    """Credentials of a caller; services are callers, too."""

    # Inputs are not repeated in errors: some are secrets.
    model_config = SettingsConfigDict(
        env_prefix="MODNORM_", frozen=True, hide_input_in_errors=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_other_encodings(cls, value: object) -> object:
        if isinstance(value, str | Path) and not is_utf8(str(value)):
            raise PydanticCustomError("encoding", "is not UTF-8 under a locale of UTF-8")
        return value

    token: SecretStr = SecretStr("")
    """Bearer token, as `modnorm token create` printed it."""
    token_file: GivenPath | None = None
    """File that holds the token, read at every call; instead of `token`."""
    tls_ca: GivenPath | None = None
    """Authorities that must have signed the other side's certificate, PEM; turns TLS on."""
    tls_cert: GivenPath | None = None
    """Own certificate chain, PEM."""
    tls_key: GivenPath | None = None
    """Private key of `tls_cert`, PEM."""
    proxy: Annotated[SecretStr, AfterValidator(_check_proxy)] = SecretStr("")
    """`http://[USER:PASSWORD@]HOST:PORT`, the proxy of calls to other machines. `http_proxy` does
    not count: it is for downloads."""

    @property
    def credentials(self) -> Credentials:
        """Credentials of channels."""
        return Credentials(
            token=self.token,
            token_file=self.token_file,
            tls_ca=self.tls_ca,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            proxy=self.proxy,
        )
