"""Running a suite: many experiments on one lab, resumed where they were broken off."""

from modnorm.suites.running.journal import CellRecord, CellState, Journal
from modnorm.suites.running.runner import SuiteRunner

__all__ = ["CellRecord", "CellState", "Journal", "SuiteRunner"]
