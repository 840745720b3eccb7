"""A whole `results.json` of a run with one expert, and records of rows."""

from collections.abc import Mapping

from modnorm.analysis.run_data import RowsRecord


def small_results(spec: Mapping[str, object], **vote: object) -> dict[str, object]:
    """Return the document, with some fields of the vote changed; the base alone has 0.5."""
    rows = {"source": "a.jsonl", "config": None, "split": None, "revision": None, "offset": 0}
    rows |= {"rows": 4, "digest": "ab" * 32}
    cost = {"search": 16, "development": 0, "final": 4, "total": 20}
    expert = {"rank": 1, "index": 0, "seed": 7, "selection_reward": 0.5}
    votes = {"population": 4, "ensemble_size": 1, "experts": [0], "correct": 3, "rows": 4}
    shares = {"answers": 4, "valid": 1.0, "truncated": 0.0}
    agreement = {
        **dict.fromkeys(("mean_valid", "mean_support", "unanimous"), 1.0),
        "no_vote": 0.0,
        "any_correct": 0.75,
        "correct_support": [1, 3],
    }
    alone = {"heldout_metric": 0.5, "heldout_interval": None, "heldout_shares": shares}
    return {
        "schema": "modnorm-results-3",
        "spec": spec,
        "provenance": {},
        "data": {"selection": rows, "heldout": rows},
        "overlap": 0,
        "base": {"selection_reward": 0.1, "selection_accuracy": 0.1, **alone}
        | {"selection_shares": shares},
        "selection_shares": shares,
        "candidates": {"total": 4, "scored": 4, "failed": []},
        "experts": [{**expert, **alone}],
        "statistics": [],
        "ensembles": [
            {**votes, "metric": 0.75, "interval": None, "agreement": agreement}
            | {"shares": shares}
            | {"budget": cost, **vote}
        ],
        "budget": {**cost, "base": {"selection": 4, "heldout": 4}},
        "iterative": None,
        "mixed_environments": {},
    }


def rows_record(rows: int, source: str = "s", digest: str = "d") -> RowsRecord:
    """Return the record of a whole file of rows."""
    return RowsRecord(
        source=source, config=None, split=None, revision=None, offset=0, rows=rows, digest=digest
    )
