"""Tables that compare two places seed by seed."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from modnorm.analysis.support import bin_name, decompose, support_bins, supports
from modnorm.analysis.tail import ROUNDING, cutoff, required_population, survival
from modnorm.suites.outcomes import TidySuite
from modnorm.suites.rendering import BuiltTable, Figure, fill
from modnorm.suites.suite_file import (
    ComparingTable,
    Comparison,
    DifferenceTable,
    Labels,
    SpeedupTable,
    SupportTable,
    TailTable,
)

_SHARES = {"of": "p of, %", "against": "p against, %"}
_TERMS = {"Support redistribution": "support", "Conditional voting": "voting", "Total": "total"}
_TIMES = {"Search": "search", "End-to-end": "end_to_end"}

Values = dict[Labels, pd.Series]
"""Values by seed, by the labels of a row and the heading of a column."""


def difference_table(spec: DifferenceTable, data: TidySuite) -> BuiltTable:
    """Build accuracy differences, paired by seed."""
    values: Values = {
        (str(size), pair.label): _paired(
            {
                name: data.by_seed("metric", {**pick, "K": size})
                for name, pick in pair.places.items()
            }
        ).pipe(lambda metric: metric["of"] - metric["against"])
        for size in spec.ensemble_sizes
        for pair in spec.compare
    }
    return _table(spec, data, ["K"], values)


def speedup_table(spec: SpeedupTable, data: TidySuite) -> BuiltTable:
    """Build ratios of times by seed: the paper has the mean of ratios, not a ratio of means."""
    values: Values = {
        (pair.label, heading): _paired(
            {name: data.by_seed(measure, pick) for name, pick in pair.places.items()}
        ).pipe(lambda seconds: seconds["against"] / seconds["of"])
        for pair in spec.compare
        for heading, measure in _TIMES.items()
    }
    return _table(spec, data, [""], values)


def tail_table(spec: TailTable, data: TidySuite) -> BuiltTable:
    """Build required populations by threshold, `against` over `of`.

    The second table holds the cutoffs of the selections, in points (fig. 4, top).
    """
    values: Values = {}
    cutoffs: Values = {}
    for pair in spec.compare:
        gains = {name: data.at("reward_gain", pick) for name, pick in pair.places.items()}
        values |= _tails(spec, pair, gains)
        cutoffs |= _cutoffs(spec, pair, gains)
    table = _table(spec, data, ["", "threshold"], values)
    if not cutoffs:
        return table
    title = f"Gain at which the top {spec.hits} of the first N begin"
    headings = ["", "place", "N"]
    beside = _table(spec, data, headings, cutoffs, lambda at: (at[0], "cutoff", at[1]))
    return replace(table, beside=(_beside(beside, title),))


def _tails(spec: TailTable, pair: Comparison, gains: Mapping[str, pd.DataFrame]) -> Values:
    required = partial(required_population, hits=spec.hits, probability=spec.probability)
    values: Values = {}
    for least in spec.thresholds:
        row = pair.label, f"{least:g}"
        rates = _paired(
            {
                name: each.groupby("seed")["value"].agg(reaching, least)
                for name, each in gains.items()
            }
        )
        needed = rates.map(required, na_action="ignore").astype(float)
        values |= {(*row, column): 100 * rates[name] for name, column in _SHARES.items()}
        values[*row, "N_req ratio"] = needed["against"] / needed["of"]
    return values


def _cutoffs(spec: TailTable, pair: Comparison, gains: Mapping[str, pd.DataFrame]) -> Values:
    """Return the gain of the last selected candidate for the places that name an N."""
    values: Values = {}
    for name, pick in pair.places.items():
        population = int(pick.get("N", 0))
        if population >= spec.hits:
            first = gains[name]["value"].where(gains[name]["item"] < population)
            by_seed = first.groupby(gains[name]["seed"])
            values[pair.label, name, str(population), "points"] = by_seed.agg(_cutoff, spec.hits)
    return values


def _cutoff(gains: "pd.Series[float]", selected: int) -> float:
    points = gains.dropna().tolist()
    return cutoff(points, selected) if len(points) >= selected else math.nan


def support_table(spec: SupportTable, data: TidySuite) -> BuiltTable:
    """Build the decomposition of accuracy differences, in points: by seed, and the mean.

    The second table is p(m), from which it is computed, in percent (fig. 5 (a)).
    """
    values: Values = {}
    shares: Values = {}
    for pair in spec.compare:
        size = int(pair.of["K"])
        supports = _paired(
            {name: _supports(data.at("right_experts", pick)) for name, pick in pair.places.items()}
        )
        values |= _terms(pair, supports)
        shares |= _share_values(pair, supports, size)
    table = _table(spec, data, ["", "seed"], values)
    beside = _table(spec, data, ["", "m"], shares, lambda at: (at[0], "m", *at[1:]))
    means = {row[0]: of for row, of in table.rows.items() if row[1] == "mean"}
    return replace(
        table,
        notes=tuple(note for pair, of in means.items() for note in _share_notes(pair, of)),
        beside=(_beside(beside, "Held-out rows by right experts m"),),
    )


def _supports(votes: pd.DataFrame) -> pd.Series:
    """Return the support of an ensemble by seed, from its votes."""
    known = votes.dropna(subset="value").rename(columns={"value": "right_experts"})
    found = supports(known.astype({"right_experts": int, "correct": bool}), ["seed", "K"])
    by_seed = {place[0]: support for place, support in found.items()}
    return pd.Series(by_seed, index=votes["seed"].unique(), dtype=object).rename_axis("seed")


def _terms(pair: Comparison, supports: pd.DataFrame) -> Values:
    """Return the terms of a difference for each seed alone, then for all of them."""
    found = [decompose(of, against) for of, against in supports.dropna().itertuples(index=False)]
    terms = pd.DataFrame(
        {name: [100 * getattr(each, term) for each in found] for name, term in _TERMS.items()},
        index=supports.dropna().index,
    ).reindex(supports.index)
    rows = {str(seed): terms.loc[[seed]] for seed in terms.index} | {"mean": terms}
    return {(pair.label, row, name): part[name] for row, part in rows.items() for name in _TERMS}


def _share_values(pair: Comparison, supports: pd.DataFrame, size: int) -> Values:
    """Return p(m) of both places in percent: every m, then the bins that span several."""
    spanning = [counts for counts in support_bins(size) if len(counts) > 1]
    return {
        (pair.label, bin_name(counts), column): supports[name]
        .map(lambda support, counts=counts: 100 * support.share(counts), na_action="ignore")
        .astype(float)
        for counts in (*(range(m, m + 1) for m in range(size + 1)), *spanning)
        for name, column in _SHARES.items()
    }


def _paired(places: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Return the values of both places by seed; they are missing unless both are finished."""
    both = pd.concat(places, axis=1, join="inner")
    return both.dropna().reindex(both.index)


def _table(
    spec: ComparingTable,
    data: TidySuite,
    headings: Sequence[str],
    values: Values,
    printed_at: Callable[[Labels], Labels] = lambda labels: labels,
) -> BuiltTable:
    labels = [f"label {place}" for place in range(len(headings))]
    tidy = pd.concat(values, names=[*labels, "column"]).reset_index(name="value")
    return fill(spec, tidy, labels, data.field, headings=headings, printed_at=printed_at)


def _beside(table: BuiltTable, title: str) -> BuiltTable:
    """Return a table with the title that it has beside another one."""
    is_printed = any(not math.isnan(figure.paper) for figure in table.figures)
    source = table.paper_source if is_printed else None
    return replace(table, title=title, source="", paper_source=source)


def reaching(gains: "pd.Series[float]", least: float) -> float:
    """Return the fraction of gains that reach a threshold; missing until the cell is finished."""
    points = gains.dropna().tolist()
    return survival(points, (least,))[0] if points else math.nan


def _share_notes(pair: str, mean: Mapping[str, Figure]) -> tuple[str, ...]:
    """State in percent which part of a mean difference is support, and which is voting."""
    ours = _shares(*(figure.mean for figure in mean.values()))
    paper = _shares(*(figure.paper for figure in mean.values()))
    if not ours:
        return ()
    in_the_paper = f"; in the paper {paper}" if paper else ""
    return (f"{pair}: of the mean difference support and voting are {ours}{in_the_paper}",)


def _shares(support: float, voting: float, total: float) -> str:
    if math.isnan(support + voting + total) or abs(total) < ROUNDING:
        return ""
    return f"{100 * support / total:z.0f} % and {100 * voting / total:z.0f} %"
