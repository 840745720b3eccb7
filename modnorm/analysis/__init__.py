"""The results of a run: its files, tables, plots and report.

Names are imported on first use, so that reading answers loads no plots.
"""

from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modnorm.analysis.answers import AnswerFilter, AnswerRecord
    from modnorm.analysis.comparison import (
        ComparisonRow,
        Results,
        compare_runs,
        load_all_results,
        load_results,
    )
    from modnorm.analysis.export import write_run
    from modnorm.analysis.parquet_files import (
        answers_frame,
        read_answers,
        read_votes,
        votes_frame,
    )
    from modnorm.analysis.run_data import (
        BaseRow,
        CandidateRow,
        EnsembleRow,
        RowsRecord,
        RunData,
        VoteRow,
    )
    from modnorm.analysis.saved_run import SavedRun
    from modnorm.analysis.votes import VoteFilter, VoteRecord
    from modnorm.search.voting import AnswerCount

__all__ = [
    "AnswerCount",
    "AnswerFilter",
    "AnswerRecord",
    "BaseRow",
    "CandidateRow",
    "ComparisonRow",
    "EnsembleRow",
    "Results",
    "RowsRecord",
    "RunData",
    "SavedRun",
    "VoteFilter",
    "VoteRecord",
    "VoteRow",
    "answers_frame",
    "compare_runs",
    "load_all_results",
    "load_results",
    "read_answers",
    "read_votes",
    "votes_frame",
    "write_run",
]

_MODULES = {
    "answers": ("AnswerFilter", "AnswerRecord"),
    "comparison": (
        "ComparisonRow",
        "Results",
        "compare_runs",
        "load_all_results",
        "load_results",
    ),
    "export": ("write_run",),
    "parquet_files": ("answers_frame", "read_answers", "read_votes", "votes_frame"),
    "run_data": ("BaseRow", "CandidateRow", "EnsembleRow", "RowsRecord", "RunData", "VoteRow"),
    "saved_run": ("SavedRun",),
    "votes": ("AnswerCount", "VoteFilter", "VoteRecord"),
}
_PLACES = {
    name: f"{__name__}.{module}:{name}" for module, names in _MODULES.items() for name in names
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(_PLACES[name])
