"""Tables of why ensembles are right: tails and support (paper, sec. "Mechanistic Analysis")."""

from collections.abc import Callable, Mapping
from statistics import fmean, stdev

from modnorm.analysis.support import Decomposition, count_support, decompose
from modnorm.analysis.tail import cutoff, required_population, survival
from modnorm.suites.comparing import Filling, Pair, built, require_full, reward_gains
from modnorm.suites.figures import BuiltTable, Figure, FigureRow, PublishedTable
from modnorm.suites.tables import Comparison, SupportTable, TailTable

_TAIL_COLUMNS = ("p of, %", "p against, %", "N_req ratio")


def support_table(spec: SupportTable, filling: Filling) -> BuiltTable:
    """Fill the decomposition of accuracy differences, in points: by seed, and the mean."""
    published = filling.published(spec)
    terms: dict[str, Callable[[Decomposition], float]] = {
        "Support redistribution": lambda found: found.support,
        "Conditional voting": lambda found: found.voting,
        "Total": lambda found: found.total,
    }
    rows = []
    for pair in spec.compare:
        found, seeds = _decompositions(filling, pair)
        for seed in sorted(filling.chosen(pair.of)):
            here = {seed: found[seed]} if seed in found else {}
            labels = (pair.label, str(seed))
            figures = _terms(here, 1, terms, labels, published)
            rows.append(FigureRow(labels, figures))
        labels = (pair.label, "mean")
        rows.append(FigureRow(labels, _terms(found, seeds, terms, labels, published)))
    return built(spec, ("", "seed"), tuple(terms), rows)


def tail_table(spec: TailTable, filling: Filling) -> BuiltTable:
    """Fill required populations by threshold: `against` over `of`, seed by seed."""
    published = filling.published(spec)
    rows, notes = [], []
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
        notes += _cutoffs(spec, pair, filling)
    return built(spec, ("", "threshold"), _TAIL_COLUMNS, rows, notes)


def _decompositions(filling: Filling, pair: Comparison) -> tuple[dict[int, Decomposition], int]:
    found, seeds = filling.pairs(pair)
    size = int(pair.of["K"])
    return {
        seed: decompose(
            count_support(one.votes(int(pair.of["N"]), size), size),
            count_support(other.votes(int(pair.against["N"]), size), size),
        )
        for seed, (one, other) in found.items()
    }, seeds


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


def _cutoffs(spec: TailTable, pair: Comparison, filling: Filling) -> list[str]:
    """Say at which gain the selection cut, where a pick names its N."""
    notes = []
    for name, pick in (("of", pair.of), ("against", pair.against)):
        if "N" not in pick:
            continue
        population = int(pick["N"])
        found = [filling.outcomes.of(cell) for cell in filling.chosen(pick).values()]
        points = [reward_gains(each, population) for each in found if each is not None]
        cutoffs = [cutoff(each, spec.hits) for each in points if len(each) >= spec.hits]
        if cutoffs:
            spread = f" ± {stdev(cutoffs):.2f}" if len(cutoffs) > 1 else ""
            notes.append(
                f"{pair.label}, {name}: the top {spec.hits} of N = {population} begin at a gain "
                f"of {fmean(cutoffs):.2f}{spread} points, mean of {len(cutoffs)} seeds"
            )
    return notes
