"""What a run leaves behind: tables, plots and the report."""

from modnorm.analysis.comparison import ComparisonRow, Results, comparison, load_results
from modnorm.analysis.export import write_run
from modnorm.analysis.run_data import (
    BaseRow,
    CandidateRow,
    EnsembleRow,
    RowsRecord,
    RunData,
    VoteRow,
)

__all__ = [
    "BaseRow",
    "CandidateRow",
    "ComparisonRow",
    "EnsembleRow",
    "Results",
    "RowsRecord",
    "RunData",
    "VoteRow",
    "comparison",
    "load_results",
    "write_run",
]
