"""Running a suite: many experiments on one lab, resumed where they were broken off."""

from modnorm.client.suites.journal import CellRecord, CellState, Journal
from modnorm.client.suites.runner import SuiteRunner

__all__ = ["CellRecord", "CellState", "Journal", "SuiteRunner"]
