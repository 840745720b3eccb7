"""Settings of a process: what is wrong with them is said in its log, and ends it."""

import logging
import sys
from typing import TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings

from modnorm.errors import ModnormError
from services.common.logging import configure_logging

SettingsT = TypeVar("SettingsT", bound=BaseSettings)

logger = logging.getLogger(__name__)


def read_settings(kind: type[SettingsT]) -> SettingsT:
    """Return the settings that the environment has; end the process where they are wrong."""
    try:
        return kind()
    except ValidationError as error:
        wrong = "; ".join(
            f"{_variable(kind, fault['loc'])}: {fault['msg']}" for fault in error.errors()
        )
    except ModnormError as error:
        wrong = str(error)
    configure_logging("INFO")
    logger.critical("ended: %s", wrong)
    sys.exit(1)


def _variable(kind: type[BaseSettings], place: tuple[int | str, ...]) -> str:
    """Return the name of the variable that a setting comes from."""
    name = str(place[0]) if place else "settings"
    if name not in kind.model_fields:
        return name
    return f"{kind.model_config.get('env_prefix', '')}{name}".upper()
