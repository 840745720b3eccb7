"""Suites: many experiments declared together, and the tables that they fill."""

from modnorm.suites.cells import Cell
from modnorm.suites.loading import LoadedSuite, load_suite
from modnorm.suites.suite_file import Suite

__all__ = ["Cell", "LoadedSuite", "Suite", "load_suite"]
