"""The software of a worker, which each of its reports names in the environment."""

import platform
from collections.abc import Mapping

from modnorm import __version__

SOFTWARE: Mapping[str, str] = {"modnorm": __version__, "python": platform.python_version()}
"""Versions by name. That of modnorm is recorded only: no comparison of environments reads it."""
