"""Suites: many experiments declared together, and the tables that they fill."""

from modnorm.suites.cells import Cell
from modnorm.suites.loading import LoadedSuite, load_suite

__all__ = ["Cell", "LoadedSuite", "load_suite"]
