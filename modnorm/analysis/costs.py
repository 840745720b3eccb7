"""Costs of ensembles and runs: evaluations, tokens, device seconds, time by phase."""

from collections.abc import Mapping

import pandas as pd

from modnorm.analysis.document import ResultsDocument


def cost_rows(
    document: ResultsDocument,
    candidates: pd.DataFrame,
    timings: Mapping[str, object],
    heldout_tokens: pd.Series | None,
) -> list[dict[str, object]]:
    """Return the cost of each (N, K) of a run alone: its N candidates and its K experts.

    Args:
        document: Content of `results.json`.
        candidates: Content of `candidates.csv`.
        timings: Content of `timings.json`.
        heldout_tokens: Tokens of the held-out answers by candidate; None if they are not known.

    Returns:
        For each (N, K) the costs of the search, of the final vote and of both:

        - stored answers: `search_evaluations`, `final_evaluations`, `evaluations`;
        - generated tokens: `search_tokens`, `final_tokens`, `tokens`; None if not known;
        - seconds summed over workers: `search_seconds`, `final_seconds`, `device_seconds`.
    """
    seconds = _seconds(timings)
    return [
        {
            "N": each["population"],
            "K": each["ensemble_size"],
            "search_evaluations": each["budget"]["search"],
            "final_evaluations": each["budget"]["final"],
            "evaluations": each["budget"]["total"],
            **_tokens(candidates, heldout_tokens, each["population"], each["experts"]),
            **_device_seconds(seconds, each["population"], each["experts"]),
        }
        for each in document["ensembles"]
    ]


def time_row(timings: Mapping[str, object]) -> dict[str, object]:
    """Return the seconds of a run by phase.

    Returns:
        `search` and `end_to_end` by the paper's scope, `workers`, `calibration`, then `wall_*`
        (wall time) and `device_*` (summed over the workers) by phase.
    """
    scope = timings.get("scope")
    row: dict[str, object] = {}
    for name, value in scope.items() if isinstance(scope, dict) else ():
        if isinstance(value, dict):
            row |= {f"{name}_{phase}": seconds for phase, seconds in value.items()}
        else:
            row[name] = value
    return row


def _seconds(timings: Mapping[str, object]) -> pd.DataFrame:
    found = timings.get("candidates")
    columns = ["index", "seconds", "heldout_seconds"]
    return pd.DataFrame(found if isinstance(found, list) else [], columns=columns)


def _tokens(
    candidates: pd.DataFrame, heldout: pd.Series | None, population: int, experts: list[int]
) -> dict[str, int | None]:
    search = int(candidates["selection_tokens"].iloc[:population].sum())
    final = None if heldout is None else int(heldout.reindex(experts, fill_value=0).sum())
    return {
        "search_tokens": search,
        "final_tokens": final,
        "tokens": None if final is None else search + final,
    }


def _device_seconds(
    seconds: pd.DataFrame, population: int, experts: list[int]
) -> dict[str, float]:
    search = float(seconds["seconds"].iloc[:population].sum())
    final = float(seconds.loc[seconds["index"].isin(experts), "heldout_seconds"].sum())
    return {
        "search_seconds": search,
        "final_seconds": final,
        "device_seconds": search + final,
    }
