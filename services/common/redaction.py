"""Removal of secrets from log lines of this project and of libraries."""

import re
from collections.abc import Mapping

from structlog.typing import EventDict, WrappedLogger

BLANK = "[secret]"
_KEYS = frozenset({"authorization", "password", "secret", "token", "api_key"})
"""Fields whose texts are secrets; numbers under these names, such as fencing tokens, are not."""
_PATTERNS = (
    re.compile(r"(modnorm_[a-z0-9-]{1,40}_)[A-Za-z0-9_-]{43}"),
    re.compile(r"(?i)(\bbearer\s+)[\w.~+/=-]{16,}"),
    re.compile(r"(\w://[^\s/:@]*:)\S+(?=@)"),
    re.compile(r"""(?i)(password['"]?\s*[=:]\s*['"]?)[^\s'",;}]+"""),
)
"""Tokens, headers, passwords in URLs, and passwords as database libraries write them."""


def blank_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Blank the secrets in an event; the last processor before the writer."""
    return {key: _field(key, value) for key, value in event.items()}


def blanked(text: str) -> str:
    """Return a text with its secrets blanked."""
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\1{BLANK}", text)
    return text


def _field(key: object, value: object) -> object:
    if isinstance(value, str) and isinstance(key, str) and key.lower() in _KEYS:
        return BLANK
    return _value(value)


def _value(value: object) -> object:
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {key: _field(key, inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_value(inner) for inner in value]
    return blanked(value if isinstance(value, str) else repr(value))
