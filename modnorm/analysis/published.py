"""The CSV files in `results/` of the paper's public code, read as our tables and recomputed.

https://github.com/kiratoyoshihara/Modular-Norm-RandOpt
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pandas as pd

from modnorm.analysis.analyses import Analysis, analyze
from modnorm.analysis.run_tables import GROUP, RUN, RunTables
from modnorm.analysis.support import decomposition_means, support_bin_means
from modnorm.analysis.tail import HITS, population_ratios, with_required
from modnorm.errors import InvalidInputError

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
"""Model of all figures but the transfer summary."""
METHOD, REFERENCE = "Modular Norm RandOpt", "RandOpt"
_SEEDS = (42, 43, 44)
_CANDIDATES, _SCALING = "candidate_rewards.csv", "figure2_population_scaling_data.csv"
_COUNTS = "figure2_population_scaling_per_seed.csv"
_PROBLEMS = "figure5_problem_level.csv"
_CUTOFF_POPULATIONS = MappingProxyType({REFERENCE: 300, METHOD: 25})
_DECOMPOSED = {
    "selected_k": "K",
    "modular_norm_randopt_population_size": "N",
    "randopt_population_size": "reference_N",
}
_PLACE = {"population_size": "N", "k": "K", "selected_k": "K"}


def is_published(directory: Path) -> bool:
    """Return whether a directory holds files of the public code."""
    return any(
        (directory / name).is_file()
        for name in (_CANDIDATES, *(file for file, _ in _SUMMARIES.values()))
    )


def read_inputs(directory: Path) -> RunTables:
    """Return the inputs of the published figures that the directory holds.

    Accuracies are computed from the numbers of right rows in
    `figure2_population_scaling_per_seed.csv`; without that file they are those of
    `figure2_population_scaling_data.csv`. Gains come from `candidate_rewards.csv` and votes from
    `figure5_problem_level.csv`.

    Raises:
        InvalidInputError: a file has other columns.
    """
    counts = _read(directory / _COUNTS, _counted)
    return RunTables(
        ensembles=counts if len(counts) else _read(directory / _SCALING, _ensembles),
        candidates=_read(directory / _CANDIDATES, _candidates),
        votes=_read(directory / _PROBLEMS, _votes),
    )


def read_summaries(directory: Path) -> Mapping[str, pd.DataFrame]:
    """Return the published summaries that the directory holds, as tables of `analyze`.

    Raises:
        InvalidInputError: a file has other columns.
    """
    found = {
        name: _read(directory / file, convert) for name, (file, convert) in _SUMMARIES.items()
    }
    return {name: table for name, table in found.items() if len(table)}


def _read(path: Path, convert: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame:
    if not path.is_file():
        return pd.DataFrame()
    try:
        return convert(pd.read_csv(path))
    except (ValueError, KeyError) as error:
        raise InvalidInputError(
            f"{path} is not the published file of that name: {error}",
            field="directory",
            remedy="copy results/ of the public code again",
        ) from error


def _ensembles(table: pd.DataFrame) -> pd.DataFrame:
    columns = {f"accuracy_seed_{seed}_percent": seed for seed in _SEEDS}
    long = table.rename(columns={**_PLACE, **columns}).melt(
        id_vars=["task", "method", "N", "K"],
        value_vars=list(_SEEDS),
        var_name="seed",
        value_name="accuracy",
    )
    return long.assign(model=MODEL, rows=0)[[*RUN, "N", "K", "accuracy", "rows"]]


def _counted(table: pd.DataFrame) -> pd.DataFrame:
    found = table.rename(columns={**_PLACE, "validation_samples": "rows"}).assign(model=MODEL)
    found["accuracy"] = 100 * (found["correct"] / found["rows"])
    return found[[*RUN, "N", "K", "accuracy", "rows"]]


def _candidates(table: pd.DataFrame) -> pd.DataFrame:
    size = table.groupby(["figure", *RUN])["candidate_index"].transform("size")
    gain = 100 * (table["train_reward"] - table["base_train_reward"])
    found = table.rename(columns={"candidate_index": "index"})
    found = found.assign(N=size, reward_gain=gain, accuracy_gain=float("nan"))
    return found[[*RUN, "N", "index", "reward_gain", "accuracy_gain"]]


def _votes(table: pd.DataFrame) -> pd.DataFrame:
    columns = {
        "sample_index": "row",
        "correct_support": "right_experts",
        "ensemble_correct": "correct",
    }
    found = table.rename(columns={**_PLACE, **columns}).assign(model=MODEL)
    return found[[*RUN, "N", "K", "row", "right_experts", "correct"]]


def _scaling(table: pd.DataFrame) -> pd.DataFrame:
    columns = {"accuracy_mean_percent": "mean", "accuracy_sample_sd_percent": "sd"}
    found = table.rename(columns={**_PLACE, **columns}).assign(model=MODEL)
    return found[[*GROUP, "N", "K", "mean", "sd"]]


def _overview(table: pd.DataFrame) -> pd.DataFrame:
    """Convert the accuracies of figure 1."""
    columns = {"accuracy_mean": "mean", "accuracy_std": "sd"}
    found = table.rename(columns={**_PLACE, **columns}).assign(model=MODEL)
    found["method"] = found["method"].replace("MN-RandOpt", METHOD)
    return found[[*GROUP, "N", "K", "mean", "sd"]]


def _transfer(table: pd.DataFrame) -> pd.DataFrame:
    found = table.rename(columns={**_PLACE, "mn_randopt_minus_randopt_pt": "mean"})
    found = found.assign(method=METHOD, reference_method=REFERENCE)
    return found[[*GROUP, "N", "reference_method", "K", "mean"]]


def _survival(table: pd.DataFrame) -> pd.DataFrame:
    parts = {"mean": "mean", "sample_sd": "sd", "min": "min", "max": "max"}
    columns = {f"tail_probability_{theirs}_pct": ours for theirs, ours in parts.items()}
    columns |= {"reward_gain_threshold_pp": "threshold"}
    found = table.rename(columns={**_PLACE, **columns}).assign(model=MODEL)
    return found[[*GROUP, "N", "threshold", *parts.values()]]


def _required(table: pd.DataFrame) -> pd.DataFrame:
    parts = [
        pd.DataFrame(
            {
                "model": MODEL,
                "task": table["task"],
                "method": table["method"],
                "seed": seed,
                "N": table["candidate_count_per_seed"],
                "threshold": table["threshold_above_base_percentage_points"],
                "percent": table[f"density_seed_{seed}_percent"],
                "required": table[f"required_n_seed_{seed}"].astype("Int64"),
            }
        )
        for seed in _SEEDS
    ]
    return pd.concat(parts, ignore_index=True)


def _ratios(table: pd.DataFrame) -> pd.DataFrame:
    columns = {
        "threshold_above_base_percentage_points": "threshold",
        "tail_implied_candidate_reduction_ratio": "mean",
        "ratio_sample_sd": "sd",
        "ratio_min_across_seeds": "min",
        "ratio_max_across_seeds": "max",
    }
    found = table.rename(columns=columns)
    found = found.assign(model=MODEL, method=METHOD, reference_method=REFERENCE)
    return found[[*GROUP, "reference_method", *columns.values()]]


def _cutoffs(table: pd.DataFrame) -> pd.DataFrame:
    found = table.rename(columns={"sample_sd": "sd"}).assign(model=MODEL, task="gsm8k")
    found["N"] = found["method"].map(dict(_CUTOFF_POPULATIONS))
    return found[[*GROUP, "N", "mean", "sd", "min", "max"]]


def _bins(table: pd.DataFrame) -> pd.DataFrame:
    found = table.rename(columns={**_PLACE, "support_bin": "bin"}).assign(model=MODEL)
    found["percent"] = 100 * found["problem_rate"]
    return found.astype({"bin": str})[[*RUN, "N", "K", "bin", "percent"]]


def _bin_means(table: pd.DataFrame) -> pd.DataFrame:
    prefixes = {REFERENCE: "randopt", METHOD: "modular_norm_randopt"}
    parts = [
        pd.DataFrame(
            {
                "model": MODEL,
                "task": table["task"],
                "method": method,
                "N": _CUTOFF_POPULATIONS[method],
                "K": HITS,
                "bin": table["support_bin"].astype(str),
                "mean": 100 * table[f"{prefix}_mean"],
                "sd": 100 * table[f"{prefix}_sample_sd"],
            }
        )
        for method, prefix in prefixes.items()
    ]
    return pd.concat(parts, ignore_index=True)


def _decomposition_means(table: pd.DataFrame) -> pd.DataFrame:
    names = {
        "support": ("support_redistribution_contribution", "support_contribution_share"),
        "voting": ("conditional_vote_contribution", "conditional_vote_contribution_share"),
        "total": ("ensemble_accuracy_delta", None),
    }
    found = table.rename(columns=_DECOMPOSED).assign(
        model=MODEL, method=METHOD, reference_method=REFERENCE
    )
    keys = found[[*GROUP, "N", "reference_method", "reference_N", "K"]]
    parts = [
        keys.assign(
            term=term,
            mean=100 * table[f"{name}_mean"],
            sd=100 * table[f"{name}_sample_sd"],
            share_of_total=1.0 if share is None else table[share],
        )
        for term, (name, share) in names.items()
    ]
    return pd.concat(parts, ignore_index=True)


def _decomposition(table: pd.DataFrame) -> pd.DataFrame:
    percents = {
        "modular_norm_randopt_ensemble_accuracy": "accuracy",
        "randopt_ensemble_accuracy": "reference_accuracy",
        "support_redistribution_contribution": "support",
        "conditional_vote_contribution": "voting",
        "ensemble_accuracy_delta": "total",
        "identity_residual": "residual",
    }
    found = table.rename(columns={**_DECOMPOSED, **percents})
    found = found.assign(model=MODEL, method=METHOD, reference_method=REFERENCE)
    found[list(percents.values())] *= 100
    return found[[*RUN, "N", "reference_method", "reference_N", "K", *percents.values()]]


_SUMMARIES: Mapping[str, tuple[str, Callable[[pd.DataFrame], pd.DataFrame]]] = MappingProxyType(
    {
        "overview": ("figure1_population_scaling.csv", _overview),
        "transfer": ("figure1_transfer_summary.csv", _transfer),
        "population-scaling": (_SCALING, _scaling),
        "reward-survival": ("figure3_candidate_survival.csv", _survival),
        "required-populations": ("figure4_useful_candidate_density.csv", _required),
        "population-ratios": ("figure4_required_population_ratio.csv", _ratios),
        "selection-cutoffs": ("figure4_top10_cutoff_summary.csv", _cutoffs),
        "support-bins": ("figure5_support_per_seed.csv", _bins),
        "support-bin-means": ("figure5_support_aggregate.csv", _bin_means),
        "decomposition-by-seed": ("figure5_exact_decomposition_per_seed.csv", _decomposition),
        "decomposition": ("figure5_exact_decomposition_aggregate.csv", _decomposition_means),
    }
)
"""Published file of each table, and the function that makes the table from it."""


_GIVEN = ["percent"]
"""Columns that tables take from the published figures of each seed as they are."""
_KEYS = (
    "model", "task", "method", "seed", "N", "reference_method", "reference_N", "K",
    "threshold", "bin", "term",
)  # fmt: skip
TOLERANCE = 1e-9
"""Largest difference of a value that counts as reproduced, relative to 1 or the value."""


def check_summaries(
    ours: Mapping[str, pd.DataFrame], published: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare the published summaries with our tables, value by value.

    Args:
        ours: Tables of `analyze`, from the published inputs.
        published: What `read_summaries` returned.

    Returns:
        A row for each summary and column: how many `values` both have, how many `reproduced`, and
        the `largest_difference`. A summary without its inputs is absent.
    """
    rows = [
        {"summary": name, **row}
        for name, theirs in published.items()
        if (table := ours.get(name)) is not None
        for row in _columns(table, theirs)
    ]
    return pd.DataFrame(rows)


def _columns(ours: pd.DataFrame, theirs: pd.DataFrame) -> list[dict[str, object]]:
    keys = [name for name in _KEYS if name in ours and name in theirs]
    values = [name for name in theirs if name in ours and name not in keys]
    both = ours[[*keys, *values]].merge(
        theirs[[*keys, *values]], on=keys, suffixes=("", "_theirs")
    )
    rows = []
    for name in values:
        pair = both[[name, f"{name}_theirs"]].dropna().astype(float)
        differences = (pair[name] - pair[f"{name}_theirs"]).abs()
        limit = TOLERANCE * pair[f"{name}_theirs"].abs().clip(lower=1)
        rows.append(
            {
                "column": name,
                "values": len(pair),
                "reproduced": int((differences <= limit).sum()),
                "largest_difference": differences.max() if len(pair) else None,
            }
        )
    return rows


def analyze_published(directory: Path) -> tuple[Analysis, pd.DataFrame]:
    """Analyze the `results/` directory of the public code.

    Args:
        directory: A copy of it, or of some of its files.

    Returns:
        The analysis, and how far it reproduces the published summaries (`check_summaries`). Where
        the inputs are not in the directory, a table follows from the published figures of each
        seed, or else is the published summary itself.

    Raises:
        InvalidInputError: a file has other columns.
    """
    summaries = read_summaries(directory)
    survival = summaries.get("reward-survival", pd.DataFrame(columns=["task", "threshold"]))
    thresholds = {
        str(task): sorted(set(points)) for task, points in survival.groupby("task")["threshold"]
    }
    inputs = read_inputs(directory)
    found = {
        name: _shown(table, summaries.get(name))
        for name, table in analyze(inputs, survival_thresholds=thresholds).tables.items()
    }
    found = {name: table for name, table in found.items() if len(table)}
    derived = _from_summaries(summaries)
    scaling = {"overview": found["population-scaling"]} if "population-scaling" in found else {}
    computed = {
        name: table.drop(columns=_GIVEN, errors="ignore") for name, table in derived.items()
    }
    check = check_summaries({**computed, **found, **scaling}, summaries)
    return Analysis(REFERENCE, {**summaries, **derived, **found}), check


def _from_summaries(summaries: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the summaries of the published figures of each seed."""
    found = {}
    if (shares := summaries.get("required-populations")) is not None:
        found["required-populations"] = with_required(shares)
        found["population-ratios"] = population_ratios(found["required-populations"], REFERENCE)
    if (bins := summaries.get("support-bins")) is not None:
        found["support-bin-means"] = support_bin_means(bins)
    if (terms := summaries.get("decomposition-by-seed")) is not None:
        found["decomposition"] = decomposition_means(terms)
    return found


def _shown(table: pd.DataFrame, summary: pd.DataFrame | None) -> pd.DataFrame:
    """Return the rows of the tasks that a published summary has; the inputs have more."""
    return table if summary is None else table[table["task"].isin(summary["task"])]
