"""Every table and figure of the replication, from the small copies of its runs."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from textwrap import fill
from typing import cast

import numpy as np
import pandas as pd

from modnorm.analysis.analyses import analyze
from modnorm.analysis.figures import write_figures
from modnorm.analysis.parquet_files import read_ballots
from modnorm.analysis.run import Run
from modnorm.analysis.seeds import grid_interval
from modnorm.analysis.uncertainty import ConfidenceInterval, mean_interval, sign_flip
from modnorm.errors import InvalidInputError
from modnorm.files import write_file
from modnorm.search.answers import BASE_INDEX
from modnorm.spec import read_yaml
from modnorm.suites import load_suite
from modnorm.suites.building import build_tables
from modnorm.suites.cells import ensembles_of
from modnorm.suites.outcomes import TidySuite, candidate_count, differing_field, find_stand_ins
from modnorm.suites.rendering import BuiltTable, to_markdown
from scripts import recorded_answers as recorded
from scripts.joined_copies import join_copies
from scripts.run_copies import ORIGIN, RunCopy, unpack_run

CLAIMS = Path("replication/claims.yaml")
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
"""Marks of the part of the page that is written here."""
_ORDERS = 10
"""Random orders of the selection rows, of which selections by fewer rows are means."""
_HEADINGS = ("claim", "case", "seeds", "paper", "ours", "95 % interval", "exact p", "holds")
_SEEDS = _HEADINGS.index("seeds")


def write_tables(cells: Path, suites: Path, out: Path, page: Path, folder: Path) -> None:
    """Write tables and figures into a directory and the claims into a page."""
    archives = sorted(cells.glob("*.zip"))
    pool = [unpack_run(archive, folder / "pool" / archive.stem) for archive in archives]
    files = {path: read_yaml(path.read_text(encoding="utf-8")) for path in suites.glob("*.yaml")}
    is_suite = {path: isinstance(one, dict) and "name" in one for path, one in files.items()}
    known = {path: _with_copies(path, pool, folder) for path in sorted(files) if is_suite[path]}
    tables = {data.loaded.suite.name: build_tables(data) for data in known.values()}
    out.mkdir(parents=True, exist_ok=True)
    parts = ["# Tables of the replication\n", *_sources(pool)]
    for path, data in known.items():
        name, cells_run = data.loaded.suite.name, len(data.runs)
        parts.append(f"## {name}\n")
        parts.append(
            f"{cells_run} cells, {len(data.loaded.cells) - cells_run} open: "
            f"`modnorm suite run {path.as_posix()} --out runs/{name}`\n"
        )
        for count, names in _stand_in_cells(data).items():
            text = (
                f"Open cells that are filled up to N = {count} from runs of another population "
                f"size: {', '.join(names)}. Tables of tails count these candidates only."
            )
            parts.append(fill(text, 120, break_on_hyphens=False) + "\n")
        parts += [
            to_markdown(table)
            for table in tables[name]
            if any(each.by_seed for row in table.rows for each in row.figures)
        ]
        parts += _analyses(data, out / "figures" / name)
    rows = list(_claim_rows(known.values(), tables))
    stand_ins = [run for data in known.values() for run in data.stand_ins.values()]
    joined = [run for run in stand_ins if isinstance(run, RunCopy) and run not in pool]
    parts += ["## Beyond the paper\n", *_beyond([*pool, *joined])]
    parts += ["## Claims\n", _markdown(_HEADINGS, rows)]
    write_file(out / "tables.md", "\n".join(parts).encode())
    measured = [row for row in rows if row[_SEEDS] != "0"]
    cases = Counter(row[0] for row in rows if row[_SEEDS] == "0")
    listed = ", ".join(f"{claim} ({count})" for claim, count in cases.items())
    without = fill(f"Cases without a cell: {listed}.", 120, break_on_hyphens=False)
    claims = "\n".join([_markdown(_HEADINGS, measured), "", without])
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    write_file(page, f"{before}{BEGIN}\n\n{claims}\n\n{END}{after}".encode())


def _with_copies(path: Path, pool: Sequence[RunCopy], folder: Path) -> TidySuite:
    """Return a suite with the copies of its cells, and stand-ins for others."""
    loaded, runs, stand_ins = load_suite(path), {}, {}
    for cell in loaded.cells:
        is_of = (run for run in pool if not differing_field(cell, run.document["spec"]))
        if run := next(is_of, None):
            runs[cell.id] = run
        elif fitting := cast("Sequence[RunCopy]", find_stand_ins(cell, pool)):
            place = folder / loaded.suite.name / cell.id
            stand_ins[cell.id] = join_copies(fitting, ensembles_of(cell.spec), place)
    return TidySuite(loaded, runs, {}, {}, "claims", stand_ins)


def _stand_in_cells(data: TidySuite) -> Mapping[int, Sequence[str]]:
    """Return the cells with a stand-in, by the number of candidates that both have."""
    names = defaultdict[int, list[str]](list)
    for cell in data.loaded.cells:
        if run := data.stand_ins.get(cell.id):
            names[min(candidate_count(run), cell.spec.population.size)].append(cell.id)
    return names


def _sources(pool: Sequence[Run]) -> Iterator[str]:
    """Yield what made the cells: command, commit and card."""
    if not pool:
        yield "0 cells. Run the suites of `examples/coder` and collect their cells first.\n"
        return
    yield f"{len(pool)} cells. Built by `make replication-tables` from `replication/cells`.\n"
    names = ("command", "commit", "card")
    origins = [json.loads((run.path / ORIGIN).read_text(encoding="utf-8")) for run in pool]
    rows = {tuple(each[name] for name in names) for each in origins}
    yield _markdown(names, sorted(rows)) + "\n"


_AGAINST = ("reference_method", "reference_N", "K")
_LARGEST = "reference_N == reference_N.max()"
_ANALYSES: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "Accuracy by population and experts (%)": ("population-scaling", "N > 0", ("K",)),
    "Difference from the reference's largest population (points)": (
        "budget-differences",
        _LARGEST,
        _AGAINST,
    ),
    "Terms of these differences (points)": (
        "decomposition",
        f"{_LARGEST} and K >= 10",
        (*_AGAINST, "term"),
    ),
    "Gain of the tenth best candidate on the selection rows (points)": (
        "selection-cutoffs",
        "seeds > 1",
        (),
    ),
    "Population that ten candidates above a gain need: the reference's over the method's": (
        "population-ratios",
        "seeds > 1 and threshold >= 1.5",
        ("reference_method", "threshold"),
    ),
}
"""By title: the table of an analysis, which of its lines, and their own columns."""


def _analyses(data: TidySuite, place: Path) -> Iterator[str]:
    """Draw finished cells and stand-ins, and yield their tables; none if other settings differ."""
    if not data.runs:
        return
    try:
        analysis = analyze([*data.stand_ins.values(), *data.runs.values()])
        write_figures(place, analysis)
    except InvalidInputError as error:
        print(f"{data.loaded.suite.name}: no figures: {error}")
        return
    for title, (name, which, own) in _ANALYSES.items():
        if name not in analysis.tables:
            continue
        columns = ["model", "task", "method", "N", *own, "seeds"]
        rows = [
            (
                *(str(line[column]).removeprefix("./models/") for column in columns),
                f"{line['mean']:.2f} [{line['lower']:.1f}, {line['upper']:.1f}]",
            )
            for _, line in analysis.tables[name].query(which).iterrows()
        ]
        if rows:
            yield f"### {title}\n\n{_markdown((*columns, 'mean'), rows)}\n"


def _claim_rows(
    known: Iterable[TidySuite], tables: Mapping[str, Sequence[BuiltTable]]
) -> Iterator[tuple[str, ...]]:
    by_name = {data.loaded.suite.name: data for data in known}
    claims = read_yaml(CLAIMS.read_text(encoding="utf-8"))
    for claim in cast("list[dict[str, object]]", claims):
        name, suite = str(claim["claim"]), str(claim["suite"])
        if suite not in tables:
            continue
        if "table" in claim:
            yield from _value_rows(name, claim, tables[suite])
            continue
        # The cases are listed, or there is one for each combination of options.
        cases = list(cast("list[Mapping[str, object]]", claim.get("cases", [])))
        axes = cast("Mapping[str, Sequence[object]]", claim.get("each", {}))
        for options in product(*axes.values()) if axes else ():
            pick = dict(zip(axes, options, strict=True))
            sides = {
                side: {**pick, **cast("Mapping[str, object]", claim[side])}
                for side in ("of", "against")
            }
            cases.append({"label": ", ".join(map(str, options)), **sides})
        for case in cases:
            yield (name, *_difference_row(case, by_name[suite], tables[suite][0]))


def _difference_row(
    case: Mapping[str, object], data: TidySuite, table: BuiltTable
) -> tuple[str, ...]:
    """Return the figures of a paired difference over the seeds that both places have.

    Where the metric is no accuracy of rows, its interval is of the seeds alone: the least and the
    largest of three, which no claim rests on.
    """
    sides = [cast("Mapping[str, str | int]", case[side]) for side in ("of", "against")]
    metrics = [data.by_seed("metric", side).dropna() for side in sides]
    seeds = sorted(set(metrics[0].index) & set(metrics[1].index))
    if "paper" in case:
        paper = None if case["paper"] is None else float(str(case["paper"]))
    else:
        of, against = (_printed(table, {str(value) for value in side.values()}) for side in sides)
        paper = None if of is None or against is None else of - against
    label, told = str(case["label"]), "" if paper is None else f"{paper:+.2f}"
    if not seeds:
        return label, "0", told, "", "", "", "open"
    votes = [data.at("correct", side).dropna(subset="value") for side in sides]
    grids = [each.pivot(index="seed", columns="item", values="value").loc[seeds] for each in votes]
    gaps = grids[0].to_numpy(dtype=float) - grids[1].to_numpy(dtype=float)
    values = (metrics[0].loc[seeds] - metrics[1].loc[seeds]).to_numpy(dtype=float)
    start = (label, str(len(seeds)), told, f"{values.mean():+.2f}")
    if not np.allclose(100 * gaps.mean(axis=1), values):
        return *start, _interval(mean_interval(values.tolist())), "", "too few seeds to tell"
    p = sign_flip(gaps.sum(axis=0).astype(int).tolist())
    interval, holds = grid_interval(100 * gaps), "open"
    if interval is not None:
        sign = 1 if paper is None or paper >= 0 else -1
        low, high = sorted((sign * interval.lower, sign * interval.upper))
        holds = "yes" if low > 0 else "no, the opposite" if high < 0 else "not separated"
    return *start, _interval(interval), "< 0.001" if p < 0.001 else f"{p:.3f}", holds


def _printed(table: BuiltTable, options: set[str]) -> float | None:
    """Return the paper's number of the place whose labels are all among some options."""
    for row, figures in table.by_labels.items():
        for column, figure in figures.items():
            labels = {*row, *([column] if len(table.columns) > 1 else [])}
            if figure.paper and labels <= options:
                return figure.paper.mean
    return None


def _value_rows(
    name: str, claim: Mapping[str, object], built: Sequence[BuiltTable]
) -> Iterator[tuple[str, ...]]:
    """Yield values of a column of a suite's table, each with the paper's.

    A claim holds for a seed if its value is above a number, or above half of another column.
    """
    table = next(each for each in built if each.title == claim["table"])
    labels = {str(row): label for row, label in cast("dict[object, str]", claim["rows"]).items()}
    for row, figures in table.by_labels.items():
        label = next((labels[each] for each in row if each in labels), None)
        if label is None:
            continue
        figure, values = figures[str(claim["column"])], figures[str(claim["column"])].by_seed
        if "above" in claim:
            least = dict.fromkeys(values, float(str(claim["above"])))
            condition = f"above {claim['above']}"
        else:
            whole = str(claim["above_half_of"])
            least = {seed: value / 2 for seed, value in figures[whole].by_seed.items()}
            condition = f"above half of the {whole.lower()}"
        above = sum(value > least[seed] for seed, value in values.items())
        ends = [f"{end(values.values()):.2f}" for end in (min, max)] if len(values) > 1 else []
        ends = list(dict.fromkeys(ends))  # one of two that are equal
        yield (
            name,
            label,
            str(len(values)),
            f"{figure.paper.mean:.2f}" if figure.paper else "",
            f"{figure.mean:.2f}" if values else "",
            f"{' to '.join(ends)} (seeds)" if ends else "",
            "",
            f"{condition} in {above} of {len(values)} seeds" if values else "open",
        )


def _beyond(pool: Sequence[RunCopy]) -> Iterator[str]:
    """Yield the tables that answer further questions, by group of runs that differ in seed."""
    groups = defaultdict[tuple[object, ...], dict[object, RunCopy]](dict)
    # Of two runs of a seed the one with more (N, K) counts.
    for run in sorted(pool, key=lambda run: len(run.ensembles)):
        spec = run.document["spec"]
        model = spec["model"]["name"].rpartition("/")[2]
        size = f"N={spec['population']['size']}"
        key = model, spec["task"]["name"], spec["method"]["name"], size
        groups[key][spec["population"]["seed"]] = run
    data = {
        f"{' '.join(map(str, key))}, seeds: {len(groups[key])}": [
            *map(_Recorded, groups[key].values())
        ]
        for key in sorted(groups, key=str)
    }
    tables = {
        "How many selection rows, racing and Wilson bounds": (_SELECTING, _selection_rows),
        "Is K = 25 of N = 25 enough?": (_UNSELECTED, _unselected_rows),
        "Coverage and agreement (points of the gain over the base)": (_TERMS, _term_rows),
        "Accuracy (%) of the answered rows, by agreement": (_CONFIDENT, _confidence_rows),
    }
    for title, (headings, rows) in tables.items():
        found = [(name, *row) for name, members in data.items() for row in rows(members)]
        if found:
            yield f"### {title}\n\n{_markdown(('runs', *headings), found)}\n"


class _Recorded:
    """The recorded rewards and votes of one run."""

    def __init__(self, run: RunCopy) -> None:
        answers = run.answers_frame(["candidate", "split", "row", "reward"])
        selection = answers[(answers["split"] == "selection") & (answers["candidate"] >= 0)]
        rewards = selection.pivot(index="candidate", columns="row", values="reward")
        population = range(run.document["candidates"]["total"])
        self.rewards = rewards.reindex(population).to_numpy(dtype=float)  # some may have failed
        self.is_whole = len(rewards) > 0 and not np.isnan(self.rewards).any()
        rows = run.document["data"]["heldout"]["rows"]
        ballots, _ = read_ballots(run.path, rows)
        self.base = ballots[BASE_INDEX]
        self.ballots = {each: one for each, one in ballots.items() if each in run.full_voters}
        places = {
            (each.population, each.ensemble_size)
            for each in run.ensembles
            if self.ballots.keys() >= {*each.experts}
        }
        columns = ["population", "ensemble_size", "correct", "valid", "support"]
        counts = run.votes_frame(columns).groupby(["population", "ensemble_size"])
        self.votes = {
            place: votes.reset_index(drop=True) for place, votes in counts if place in places
        }
        """By (N, K) whose experts answered all rows: a line for each row."""


_SELECTING = (
    "K",
    "rule",
    "cost (%)",
    "of the best K found (%)",
    "reward lost",
    "accuracy of known experts (%)",
)
_UNSELECTED = ("base", "K = 25 of N = 25", "K = 25 of N", "share of the gain (%)")
_TERMS = ("N", "K", "coverage", "agreement")
_CONFIDENT = ("N", "K", "all", "10 % unanswered", "20 %", "50 %")
_THIRD = ((1.0, 33), (0.5, 67), (0.25, 133))
"""A race at a third of the cost of the full search with 200 rows."""


def _selection_rows(runs: Sequence[_Recorded]) -> Iterator[tuple[str, ...]]:
    whole = [run for run in runs if run.is_whole and run.rewards.shape[1] >= 200]
    if not whole:
        return
    generator = np.random.default_rng(0)
    orders = [generator.permutation(whole[0].rewards.shape[1]) for _ in range(_ORDERS)]
    most = max(float(run.rewards.max()) for run in whole)
    rules: dict[str, Callable[[recorded.Floats, int, recorded.Indices], recorded.Selection]] = {
        **{
            f"{rows} rows": lambda rewards, size, order, rows=rows: recorded.by_fewer_rows(  # type: ignore[misc]
                rewards, size, order[:rows]
            )
            for rows in (50, 100, 200)
        },
        "race 50, 100, 200": recorded.by_race,
        "race 33, 67, 133": partial(recorded.by_race, stages=_THIRD),
        "Wilson bounds": partial(recorded.by_bounds, most=max(1.0, most)),
    }
    # Many rules choose the same candidates.
    accuracies = [cache(partial(recorded.known_accuracy, run.ballots)) for run in whole]
    candidates = len(whole[0].rewards)
    for size, (rule, select) in product((10, 25), rules.items()):
        if size >= candidates:
            continue
        found = [[select(run.rewards, size, order) for order in orders] for run in whole]
        values = {
            "cost": [[100 * one.cost for one in of_run] for of_run in found],
            "recall": [[100 * one.recall for one in of_run] for of_run in found],
            "lost": [[one.lost for one in of_run] for of_run in found],
            "accuracy": [
                [100 * accuracy(one.chosen) for one in of_run]
                for accuracy, of_run in zip(accuracies, found, strict=True)
            ],
        }
        yield (
            str(size),
            rule,
            *(
                _resampled(np.array(grid), 3 if name == "lost" else 1)
                for name, grid in values.items()
            ),
        )


def _unselected_rows(runs: Sequence[_Recorded]) -> Iterator[tuple[str, ...]]:
    size = max((population for run in runs for population, _ in run.votes), default=0)
    found = [run for run in runs if {(25, 25), (size, 25)} <= run.votes.keys()]
    if not found or size == 25:
        return
    grids = [
        np.array([run.base.correct for run in found], dtype=float),
        *(
            np.stack([run.votes[n, 25]["correct"].to_numpy(dtype=float) for run in found])
            for n in (25, size)
        ),
    ]

    def share(seed: int, weights: recorded.Floats) -> recorded.Floats:
        base, few, many = (weights @ grid[seed] / grid.shape[1] for grid in grids)
        gain = np.where(np.isclose(many, base), np.nan, many - base)
        return np.asarray(100 * (few - base) / gain)

    value, interval = recorded.resampled(share, *grids[0].shape)
    told = f"{value:.0f} {_interval(interval)}".rstrip()
    yield (*(_resampled(100 * grid, 1) for grid in grids), told)


def _term_rows(runs: Sequence[_Recorded]) -> Iterator[tuple[str, ...]]:
    place, found = _largest(runs)
    members = [
        (
            np.array([vote is not None for vote in run.base.votes], dtype=float),
            np.array(run.base.correct, dtype=float),
            np.asarray(votes["valid"] > 0, dtype=np.float64),
            np.asarray(votes["correct"], dtype=np.float64),
        )
        for run, votes in found
    ]

    def term(index: int, seed: int, weights: recorded.Floats) -> recorded.Floats:
        return 100 * recorded.gain_terms(*members[seed], weights)[index]

    yield from _row_of_figures(place, members, [partial(term, index) for index in (0, 1)], "+.1f")


def _confidence_rows(runs: Sequence[_Recorded]) -> Iterator[tuple[str, ...]]:
    place, found = _largest(runs)
    members = [
        (votes["support"].to_numpy(dtype=float), votes["correct"].to_numpy(dtype=float))
        for _, votes in found
    ]

    def accuracy(unanswered: float, seed: int, weights: recorded.Floats) -> recorded.Floats:
        return 100 * recorded.confident_accuracy(*members[seed], weights, unanswered)

    figures = [partial(accuracy, unanswered) for unanswered in (0.0, 0.1, 0.2, 0.5)]
    yield from _row_of_figures(place, members, figures, ".1f")


def _largest(
    runs: Sequence[_Recorded],
) -> tuple[tuple[int, int], list[tuple[_Recorded, pd.DataFrame]]]:
    """Return the largest (N, K) of several experts, and its votes in the runs that report it."""
    place = max((one for run in runs for one in run.votes if one[1] > 1), default=(0, 0))
    return place, [(run, run.votes[place]) for run in runs if place in run.votes]


def _row_of_figures(
    place: tuple[int, int],
    members: Sequence[tuple[recorded.Floats, ...]],
    figures: Sequence[recorded.Figure],
    form: str,
) -> Iterator[tuple[str, ...]]:
    if members:
        found = [recorded.resampled(one, len(members), len(members[0][0])) for one in figures]
        cells = (f"{value:{form}} {_interval(bounds)}" for value, bounds in found)
        yield (*map(str, place), *cells)


def _resampled(grid: recorded.Floats, digits: int) -> str:
    """Return the mean of a grid and its interval over its lines and columns."""
    seeds, columns = grid.shape
    value, interval = recorded.resampled(
        lambda seed, weights: weights @ grid[seed] / columns, seeds, columns
    )
    return f"{value:.{digits}f} {_interval(interval, digits=digits)}"


def _interval(interval: ConfidenceInterval | None, *, digits: int = 1) -> str:
    if interval is None:
        return ""
    # Plus 0.0: a limit that is zero but for rounding has no sign.
    low, high = (round(limit, digits) + 0.0 for limit in interval)
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def _markdown(
    headings: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]
) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
