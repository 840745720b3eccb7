"""Refuse an interpreter that modnorm cannot run on, before anything is installed."""

import sys

OLDEST = (3, 11)

if sys.version_info < OLDEST:
    found = ".".join(str(part) for part in sys.version_info[:3])
    sys.exit(f"modnorm needs Python 3.11 or newer, this is {found}: make PYTHON=python3.11 ...")
