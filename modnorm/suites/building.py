"""The tables of a suite, each computed from its tidy table."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from modnorm.analysis.seeds import ROUNDING as SAME
from modnorm.analysis.seeds import (
    TERMS,
    Array,
    bin_name,
    cutoff,
    required_population,
    split_terms,
    support_bins,
    support_counts,
    survival,
)
from modnorm.errors import InvalidInputError
from modnorm.suites.outcomes import TidySuite, select
from modnorm.suites.rendering import BuiltTable, fill
from modnorm.suites.suite_file import (
    NUMBERS,
    CellTable,
    ComparingTable,
    DensityTable,
    DevelopmentTable,
    DifferenceTable,
    Labels,
    MetricTable,
    RoundsTable,
    SpeedupTable,
    SupportTable,
    SurvivalTable,
    Table,
    TailTable,
    ThresholdTable,
    WallClockTable,
)

_METRIC, _REDUCTION = "metric (%)", "Eval. red."
_BASE_SECTIONS = frozenset({"model", "task", "engine"})
"""Sections of a spec that change the results of the unperturbed model."""


def build_tables(data: TidySuite) -> tuple[BuiltTable, ...]:
    """Build the tables of a suite from its finished cells; notes say what is not comparable."""
    notes = [
        f"left out: {cell} holds a run of other settings ({field})"
        for cell, field in data.strangers.items()
    ]
    runs = {**data.stand_ins, **data.runs}
    if mixed := [cell for cell, run in runs.items() if run.document["mixed_environments"]]:
        notes.append(f"answered on machines that round differently: {', '.join(mixed)}")
    tables = [
        _BUILDERS[type(spec)](spec, replace(data, place=f"tables.{index}"))
        for index, spec in enumerate(data.loaded.suite.tables)
    ]
    return tuple(replace(table, notes=(*table.notes, *notes)) for table in tables)


def _metric_table(spec: MetricTable, data: TidySuite) -> BuiltTable:
    labels = list(dict.fromkeys([*spec.rows, *spec.columns, "seed"]))
    places = pd.concat(
        select(group, {**spec.at, **spec.at_row.get(str(label), {})})
        for label, group in data.ensembles.groupby(spec.rows[0], observed=True)
    ).sort_values(labels)
    data.check_distinct(places, labels)
    values = data.values("metric", places)
    if spec.base_row is not None:
        values = pd.concat([values, _base_rows(spec, spec.base_row, places, data)])
    if spec.reduction:
        return _with_reductions(spec, data, values)
    columns = _metric_columns(spec, places)
    table = fill(spec, values, spec.rows, data.place, axes=spec.columns, columns=columns)
    return replace(table, notes=_contrast_notes(spec, table, columns))


def _metric_columns(spec: MetricTable, places: pd.DataFrame) -> dict[Labels, str]:
    """Return the headings of the columns by their options; N and K stand with their names."""
    if not spec.columns:
        return {(): _METRIC}
    options = places[[*spec.columns]].drop_duplicates().sort_values([*spec.columns]).astype(str)
    return {
        labels: " ".join(
            f"{axis}={label}" if axis in NUMBERS else label
            for axis, label in zip(spec.columns, labels, strict=True)
        )
        for labels in options.itertuples(index=False, name=None)
    }


def _base_rows(
    spec: MetricTable, label: str, places: pd.DataFrame, data: TidySuite
) -> pd.DataFrame:
    """Return the values of the unperturbed model, which every cell measures.

    Its rows are the options of the axes that choose a model, task or engine. The label stands in
    the place of the first other axis.
    """
    suite, kept = data.loaded.suite, []
    for axis in spec.rows:
        fragments = [*suite.axes.get(axis, {}).values()]
        fragments += [override.set for override in suite.overrides if axis in override.where]
        if axis == "seed" or any(_BASE_SECTIONS & fragment.keys() for fragment in fragments):
            kept.append(axis)
    groups = list(dict.fromkeys([*kept, *spec.columns, "seed"]))
    base = data.values("base", places).groupby(groups, observed=True)["value"].last().reset_index()
    others = [axis for axis in spec.rows if axis not in kept]
    for axis in others:
        base[axis] = label if axis == others[0] else ""
    if not others:
        base[spec.rows[-1]] = base[spec.rows[-1]].astype(str) + f", {label}"
    return base


def _with_reductions(spec: MetricTable, data: TidySuite, metrics: pd.DataFrame) -> BuiltTable:
    """Build metrics and, beside them, the cost of the reference over the cost of each row."""
    costs = data.values("evaluations", metrics.drop(columns="value"))
    kept = [*(axis for axis in spec.rows if axis not in spec.reduction), "seed"]
    reference = select(costs, spec.reduction)[[*kept, "value"]]
    both = costs.merge(reference, on=kept, how="left", suffixes=("", " of reference"))
    ratios = both.assign(value=both["value of reference"] / both["value"].mask(both["value"] == 0))
    tables = {_METRIC: metrics, _REDUCTION: ratios}
    values = pd.concat(tables, names=["column"]).reset_index("column")
    table = fill(spec, values, spec.rows, data.place)
    return replace(table, notes=_contrast_notes(spec, table, {(): _METRIC}))


def _threshold_table(
    spec: ThresholdTable, data: TidySuite, measure: str, heading: str
) -> BuiltTable:
    gains = data.by_row(measure, spec.rows)
    columns = {heading.format(t): 100 * gains.agg(reaching, t) for t in spec.thresholds}
    return _cell_table(spec, data, columns)


def _development_table(spec: DevelopmentTable, data: TidySuite) -> BuiltTable:
    """Build the accuracies of the first, best and last state, with notes on the chosen setting."""
    states = data.by_row("state", spec.rows)
    columns = {"First": states.first(), "Best": states.max(), "Last": states.last()}
    table = _cell_table(spec, data, columns)
    return replace(table, notes=_choice_notes(spec, table))


def _rounds_table(spec: RoundsTable, data: TidySuite) -> BuiltTable:
    """Build the accuracies of distillations and the share of the vote's gain that is kept."""
    rounds = 0
    for cell in data.loaded.cells:
        if cell.spec.distillation is None:
            raise InvalidInputError(
                f"{cell.id} is no distillation: it has no rounds",
                field=data.place,
                remedy="give all cells a section `distillation`, or make a metric table",
            )
        rounds = max(rounds, cell.spec.distillation.rounds)
    measures = {"base": "base", "rank 1": "rank_1", "vote": "vote"}
    columns = {name: data.by_row(one, spec.rows).first() for name, one in measures.items()}
    students, labels = data.values("student"), list(dict.fromkeys([*spec.rows, "seed"]))
    for number in range(1, rounds + 1):
        one = students[students["item"] == number].set_index(labels)["value"]
        columns[f"student {number}"] = one.reindex(columns["base"].index)
    columns["best student"] = data.by_row("best_student", spec.rows).first()
    kept = data.by_row("gain_kept", spec.rows).first()
    # A finished cell whose vote gained nothing keeps no share of it.
    columns["gain kept"] = kept[kept.notna() | columns["base"].isna()]
    return _cell_table(spec, data, columns)


def _wall_clock_table(spec: WallClockTable, data: TidySuite) -> BuiltTable:
    """Build times in minutes, with a note on runs that several workers shared."""
    columns = {
        heading: data.by_row(measure, spec.rows).first() / 60
        for heading, measure in (("Search", "search"), ("Total", "end_to_end"))
    }
    workers = data.values("workers")
    shared = workers["cell"][workers["value"] > 1]
    note = (
        f"not comparable with one engine a run: {', '.join(shared)} were spread over several "
        "workers; search is the sum of their times, the total what passed"
    )
    return replace(_cell_table(spec, data, columns), notes=(note,) if len(shared) else ())


def _cell_table(
    spec: CellTable, data: TidySuite, columns: Mapping[str, "pd.Series[float]"]
) -> BuiltTable:
    """Build a table from its columns, each indexed by the labels of a row and the seed."""
    values = pd.concat(columns, names=["column"]).reset_index(name="value")
    return fill(spec, values, spec.rows, data.place)


def _contrast_notes(
    spec: MetricTable, table: BuiltTable, columns: Mapping[Labels, str]
) -> tuple[str, ...]:
    """State in how many places one option is above each other one, here and in the paper."""
    if spec.contrast is None:
        return ()
    at = spec.axes.index(spec.contrast.axis)
    figures = pd.DataFrame(
        [
            (
                labels[at],
                " / ".join((*labels[:at], *labels[at + 1 :])),
                figure.complete_mean,
                figure.paper.mean if figure.paper else math.nan,
            )
            for row, by_column in table.by_labels.items()
            for options, heading in columns.items()
            for labels, figure in [((*row, *options), by_column[heading])]
        ],
        columns=["option", "place", "ours", "paper"],
    )
    of = figures[figures["option"] == spec.contrast.of]
    return tuple(
        f"{spec.contrast.of} above {other}: "
        + _compare(
            of.merge(figures[figures["option"] == other], on="place", suffixes=("", "_other"))
        )
        for other in spec.contrast.against
    )


def _compare(both: pd.DataFrame) -> str:
    """State in how many places the first option is above the second one."""
    gaps = [both[name] - both[f"{name}_other"] for name in ("ours", "paper")]
    ours, paper = (gap.mask(gap.abs() <= SAME, 0).transform(np.sign) for gap in gaps)
    ties = [f", {count} tied" if (count := (each == 0).sum()) else "" for each in (ours, paper)]
    differing = both["place"][ours.notna() & paper.notna() & (ours != paper)]
    text = "no place has all its cells"
    if ours.count():
        text = f"{(ours > 0).sum()} of {ours.count()} places{ties[0]}"
    if paper.count():
        text += f"; in the paper {(paper > 0).sum()} of {paper.count()}{ties[1]}"
    if len(differing):
        text += f"; another order than the paper's: {', '.join(differing.replace('', 'here'))}"
    elif paper.count() and ours.count():
        text += "; the same order as the paper's wherever both are known"
    return text


def _choice_notes(spec: DevelopmentTable, table: BuiltTable) -> tuple[str, ...]:
    """State which setting of each method is chosen, once all trials of the method are finished."""
    means = pd.DataFrame(
        [(*row.labels, *(figure.complete_mean for figure in row.figures)) for row in table.rows],
        columns=["method", "setting", "first", "best", "last"],
    )
    return tuple(
        _choice(spec, str(method), rows)
        for method, rows in means.groupby("method", sort=False)
        if rows.notna().all(axis=None)
    )


def _choice(spec: DevelopmentTable, method: str, trials: pd.DataFrame) -> str:
    within = math.inf if spec.stable_within is None else spec.stable_within
    is_stable = trials["last"] >= trials["first"] - within - SAME
    stable = trials[is_stable]
    best = stable["setting"][stable[spec.by] >= stable[spec.by].max() - SAME]
    text = "no stable trial"
    if len(best):
        tied = f", the first of {len(best)} that are tied" if len(best) > 1 else ""
        text = f"{best.iloc[0]} is chosen, by the {spec.by} state{tied}"
    if not is_stable.all():
        text += f"; not stable: {', '.join(trials['setting'][~is_stable])}"
    if method in spec.adopted:
        text += f"; the paper adopted {spec.adopted[method]}"
    return f"{method}: {text}"


_SHARES = {"of": "p of, %", "against": "p against, %"}
_TERMS = dict(zip(TERMS, ("Support redistribution", "Conditional voting", "Total"), strict=True))
_TIMES = {"Search": "search", "End-to-end": "end_to_end"}

Values = dict[Labels, pd.Series]
"""Values by seed, by the labels of a row and the heading of a column."""


def _difference_table(spec: DifferenceTable, data: TidySuite) -> BuiltTable:
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


def _speedup_table(spec: SpeedupTable, data: TidySuite) -> BuiltTable:
    """Build ratios of times by seed: the paper has the mean of ratios, not a ratio of means."""
    values: Values = {
        (pair.label, heading): _paired(
            {name: data.by_seed(measure, pick) for name, pick in pair.places.items()}
        ).pipe(lambda seconds: seconds["against"] / seconds["of"])
        for pair in spec.compare
        for heading, measure in _TIMES.items()
    }
    return _table(spec, data, [""], values)


def _tail_table(spec: TailTable, data: TidySuite) -> BuiltTable:
    """Build required populations by threshold, `against` over `of`.

    The second table holds the gains of the last selected candidates where a place names an N, in
    points (fig. 4, top).
    """
    required = partial(required_population, hits=spec.hits, probability=spec.probability)
    values: Values = {}
    cutoffs: Values = {}
    for pair in spec.compare:
        gains = {name: data.at("reward_gain", pick) for name, pick in pair.places.items()}
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
        for name, pick in pair.places.items():
            population = int(pick.get("N", 0))
            if population >= spec.hits:
                first = gains[name].query("not item >= @population").groupby("seed")["value"]
                place = pair.label, name, str(population), "points"
                cutoffs[place] = first.agg(cutoff, selected=spec.hits)
    table = _table(spec, data, ["", "threshold"], values)
    if not cutoffs:
        return table
    title = f"Gain at which the top {spec.hits} of the first N begin"
    headings = ["", "place", "N"]
    beside = _table(spec, data, headings, cutoffs, lambda at: (at[0], "cutoff", at[1]))
    return replace(table, beside=(_beside(beside, title),))


def _support_table(spec: SupportTable, data: TidySuite) -> BuiltTable:
    """Build the decomposition of accuracy differences, in points: by seed, and the mean.

    The second table is p(m), from which it is computed, in percent (fig. 5 (a)): every m, then the
    bins that span several.
    """
    values: Values = {}
    shares: Values = {}
    for pair in spec.compare:
        size = int(pair.of["K"])
        votes = {name: data.at("right_experts", pick) for name, pick in pair.places.items()}
        both = _paired({name: _counts(of_place, size) for name, of_place in votes.items()})
        known = both.dropna()
        found = [_terms(*sides) for sides in known.itertuples(index=False)]
        terms = pd.DataFrame(found, known.index, [*_TERMS], dtype=float).reindex(both.index)
        for term, column in _TERMS.items():
            values |= {
                (pair.label, str(seed), column): terms.loc[[seed], term] for seed in both.index
            }
            values[pair.label, "mean", column] = terms[term]
        spanning = [counts for counts in support_bins(size) if len(counts) > 1]
        for counts in (*(range(m, m + 1) for m in range(size + 1)), *spanning):
            for name, column in _SHARES.items():
                percent = both[name].map(partial(_percent_of, counts), na_action="ignore")
                shares[pair.label, bin_name(counts), column] = percent.astype(float)
    beside = _table(spec, data, ["", "m"], shares, lambda at: (at[0], "m", *at[1:]))
    table = _table(spec, data, ["", "seed"], values)
    return replace(table, beside=(_beside(beside, "Held-out rows by right experts m"),))


Counts = tuple[Array, Array]
"""Held-out rows by number of right experts, and those of them whose vote is right."""


def _counts(votes: pd.DataFrame, size: int) -> pd.Series:
    """Return the counts of an ensemble by seed; missing until the cell is finished."""
    by_seed = {
        seed: math.nan
        if of_seed["value"].isna().any()
        else support_counts(of_seed["value"], of_seed["correct"], size)
        for seed, of_seed in votes.groupby("seed", sort=False)
    }
    return pd.Series(by_seed, dtype=object).rename_axis("seed")


def _terms(of: Counts, against: Counts) -> tuple[float, float, float]:
    """Return the terms of an accuracy difference, in points."""
    shares = [each / rows.sum() for rows, right in (of, against) for each in (rows, right)]
    support, voting = (float(term) for term in split_terms(*shares))
    return 100 * support, 100 * voting, 100 * (support + voting)


def _percent_of(m: range, counts: Counts) -> float:
    rows, _ = counts
    return float(100 * (rows[m].sum() / rows.sum()))


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
    return fill(spec, tidy, labels, data.place, headings=headings, printed_at=printed_at)


def _beside(table: BuiltTable, title: str) -> BuiltTable:
    """Return a table with the title that it has beside another one."""
    is_printed = any(figure.paper for row in table.rows for figure in row.figures)
    return replace(table, title=title, source="", paper=table.paper if is_printed else None)


def reaching(gains: "pd.Series[float]", least: float) -> float:
    """Return the fraction of gains that reach a threshold; missing until the cell is finished."""
    return float(survival(gains.dropna(), [least])[0])


_BUILDERS: Mapping[type[Table], Callable[..., BuiltTable]] = {
    MetricTable: _metric_table,
    DifferenceTable: _difference_table,
    SpeedupTable: _speedup_table,
    SupportTable: _support_table,
    TailTable: _tail_table,
    DensityTable: partial(_threshold_table, measure="accuracy_gain", heading="t={:g}"),
    SurvivalTable: partial(_threshold_table, measure="reward_gain", heading="{:g}"),
    DevelopmentTable: _development_table,
    RoundsTable: _rounds_table,
    WallClockTable: _wall_clock_table,
}
