"""Tables of why ensembles are right: tails and support (paper, sec. "Mechanistic Analysis")."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from modnorm.analysis.support import (
    Decomposition,
    Support,
    bin_name,
    count_support,
    decompose,
    support_bins,
)
from modnorm.analysis.tail import ROUNDING, cutoff, required_population, survival
from modnorm.suites.comparing import (
    Filling,
    Pair,
    built,
    ensembles,
    require_full,
    reward_gains,
)
from modnorm.suites.figures import BuiltTable, Figure, FigureRow, PublishedTable
from modnorm.suites.tables import Comparison, SupportTable, TailTable

_SHARES = ("p of, %", "p against, %")
_TAIL_COLUMNS = (*_SHARES, "N_req ratio")


def support_table(spec: SupportTable, filling: Filling) -> BuiltTable:
    """Fill the decomposition of accuracy differences, in points: by seed, and the mean.

    Beside it stands p(m), of which it is made, in percent (fig. 5 (a)).
    """
    published = filling.published(spec)
    terms: dict[str, Callable[[Decomposition], float]] = {
        "Support redistribution": lambda found: found.support,
        "Conditional voting": lambda found: found.voting,
        "Total": lambda found: found.total,
    }
    rows: list[FigureRow] = []
    shares: list[FigureRow] = []
    notes: list[str] = []
    for pair in spec.compare:
        supports, seeds = _supports(filling, pair)
        found = {seed: decompose(*both) for seed, both in supports.items()}
        for seed in sorted(filling.chosen(pair.of)):
            here = {seed: found[seed]} if seed in found else {}
            labels = (pair.label, str(seed))
            figures = _terms(here, 1, terms, labels, published)
            rows.append(FigureRow(labels, figures))
        labels = (pair.label, "mean")
        rows.append(FigureRow(labels, _terms(found, seeds, terms, labels, published)))
        notes += _split(rows[-1])
        shares += _shares(pair, supports, seeds, published)
    beside = _beside(spec, "Held-out rows by right experts m", ("", "m"), _SHARES, shares)
    table = built(spec, ("", "seed"), tuple(terms), rows)
    return replace(table, notes=tuple(notes), beside=beside)


def tail_table(spec: TailTable, filling: Filling) -> BuiltTable:
    """Fill required populations by threshold: `against` over `of`, seed by seed.

    Beside it stand the cutoffs of the selections, in points (fig. 4, top).
    """
    published = filling.published(spec)
    rows = []
    cutoffs: list[FigureRow] = []
    for pair in spec.compare:
        found, seeds = filling.pairs(pair)
        for outcome in (each for both in found.values() for each in both):
            require_full(outcome, filling.field)
        for threshold in spec.thresholds:
            labels = (pair.label, f"{threshold:g}")
            figures = _tail(spec, found, threshold)
            rows.append(
                FigureRow(
                    labels,
                    tuple(
                        Figure(values, seeds, published.find((*labels, column)))
                        for column, values in figures.items()
                    ),
                )
            )
        cutoffs += _cutoffs(spec, pair, filling, published)
    title = f"Gain at which the top {spec.hits} of the first N begin"
    beside = _beside(spec, title, ("", "place", "N"), ("points",), cutoffs)
    return replace(built(spec, ("", "threshold"), _TAIL_COLUMNS, rows), beside=beside)


def _supports(
    filling: Filling, pair: Comparison
) -> tuple[dict[int, tuple[Support, Support]], int]:
    for pick in (pair.of, pair.against):
        ensembles(filling, pick)
    found, seeds = filling.pairs(pair)
    size = int(pair.of["K"])
    return {
        seed: (
            count_support(one.votes(int(pair.of["N"]), size), size),
            count_support(other.votes(int(pair.against["N"]), size), size),
        )
        for seed, (one, other) in found.items()
    }, seeds


def _shares(
    pair: Comparison,
    found: Mapping[int, tuple[Support, Support]],
    seeds: int,
    published: PublishedTable,
) -> Iterator[FigureRow]:
    """Yield p(m) of both places in percent: every m, then the bins that span several."""
    size = int(pair.of["K"])
    spanning = [counts for counts in support_bins(size) if len(counts) > 1]
    for counts in (*(range(m, m + 1) for m in range(size + 1)), *spanning):
        name = bin_name(counts)
        figures = (
            Figure(
                {seed: 100 * both[place].share(counts) for seed, both in found.items()},
                seeds,
                published.find((pair.label, "m", name, column)),
            )
            for place, column in enumerate(_SHARES)
        )
        yield FigureRow((pair.label, name), tuple(figures))


def _split(mean: FigureRow) -> Iterator[str]:
    """Say which part of a mean difference each of its terms is."""
    ours = _parts([figure.mean for figure in mean.figures])
    paper = _parts([figure.paper.mean if figure.paper else None for figure in mean.figures])
    if ours:
        told = f"; in the paper {paper}" if paper else ""
        yield f"{mean.labels[0]}: of the mean difference support and voting are {ours}{told}"


def _parts(means: Sequence[float | None]) -> str:
    """Return two terms in percent of their sum, which follows them; empty without a difference."""
    support, voting, total = means
    if support is None or voting is None or total is None or abs(total) < ROUNDING:
        return ""
    return f"{100 * support / total:z.0f} % and {100 * voting / total:z.0f} %"


def _terms(
    found: Mapping[int, Decomposition],
    seeds: int,
    terms: Mapping[str, Callable[[Decomposition], float]],
    labels: tuple[str, ...],
    published: PublishedTable,
) -> tuple[Figure, ...]:
    return tuple(
        Figure(
            {seed: 100 * term(each) for seed, each in found.items()},
            seeds,
            published.find((*labels, name)),
        )
        for name, term in terms.items()
    )


def _tail(
    spec: TailTable, found: Mapping[int, Pair], threshold: float
) -> dict[str, dict[int, float]]:
    of: dict[int, float] = {}
    against: dict[int, float] = {}
    ratios: dict[int, float] = {}
    for seed, (one, other) in found.items():
        rates = [survival(reward_gains(each), (threshold,))[0] for each in (one, other)]
        of[seed], against[seed] = (100 * rate for rate in rates)
        needed = [
            required_population(rate, hits=spec.hits, probability=spec.probability)
            for rate in rates
        ]
        if needed[0] is not None and needed[1] is not None:
            ratios[seed] = needed[1] / needed[0]
    return dict(zip(_TAIL_COLUMNS, (of, against, ratios), strict=True))


def _cutoffs(
    spec: TailTable, pair: Comparison, filling: Filling, published: PublishedTable
) -> Iterator[FigureRow]:
    """Yield at which gain the selection cuts, where a pick names an N that it cuts."""
    for place, pick in (("of", pair.of), ("against", pair.against)):
        population = int(pick.get("N", 0))
        if population < spec.hits:
            continue
        cells = filling.chosen(pick)
        values = {}
        for seed, cell in cells.items():
            outcome = filling.outcomes.of(cell)
            points = () if outcome is None else reward_gains(outcome, population)
            if len(points) >= spec.hits:
                values[seed] = cutoff(points, spec.hits)
        paper = published.find((pair.label, "cutoff", place))
        figure = Figure(values, len(cells), paper)
        yield FigureRow((pair.label, place, str(population)), (figure,))


def _beside(
    spec: SupportTable | TailTable,
    title: str,
    headings: tuple[str, ...],
    columns: tuple[str, ...],
    rows: Sequence[FigureRow],
) -> tuple[BuiltTable, ...]:
    """Return what stands beside a table: nothing where it has no rows."""
    table = replace(built(spec, headings, columns, rows), title=title, source="")
    if not any(figure.paper for row in rows for figure in row.figures):
        table = replace(table, paper_source=None)
    return (table,) if rows else ()
