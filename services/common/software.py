"""The software of a worker, which each of its reports names in the environment."""

import platform
from collections.abc import Mapping
from importlib.metadata import version

SOFTWARE: Mapping[str, str] = {"modnorm": version("modnorm"), "python": platform.python_version()}
"""Versions by name. That of modnorm is recorded only: no comparison of environments reads it."""
