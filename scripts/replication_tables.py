"""Every table and figure of the replication, from the small copies of its runs."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from textwrap import fill
from typing import cast

import numpy as np

from modnorm.analysis.analyses import Analysis, analyze
from modnorm.analysis.run import Run
from modnorm.analysis.seeds import grid_interval
from modnorm.analysis.uncertainty import mean_interval, sign_flip
from modnorm.errors import InvalidInputError
from modnorm.files import write_file
from modnorm.spec import read_yaml
from modnorm.suites import load_suite
from modnorm.suites.building import build_tables
from modnorm.suites.cells import ensembles_of
from modnorm.suites.outcomes import TidySuite, candidate_count, differing_field, find_stand_ins
from modnorm.suites.rendering import BuiltTable, to_markdown
from scripts.joined_copies import join_copies
from scripts.recorded_tables import interval_text, markdown_table, matching_tables, tables_beyond
from scripts.run_copies import ORIGIN, RunCopy, unpack_run

CLAIMS, SUITES = Path("replication/claims.yaml"), Path("examples/coder")
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
"""Marks of the part of the page that is written here."""
_HEADINGS = ("claim", "case", "seeds", "paper", "ours", "95 % interval", "exact p", "holds")
_SEEDS = _HEADINGS.index("seeds")


def write_tables(
    cells: Path, out: Path, page: Path, folder: Path, draw: Callable[[Path, Analysis], object]
) -> None:
    """Write tables into a directory and the claims into a page, and have figures drawn."""
    archives = sorted(cells.glob("*.zip"))
    pool = [unpack_run(archive, folder / "pool" / archive.stem) for archive in archives]
    files = {path: read_yaml(path.read_text(encoding="utf-8")) for path in SUITES.glob("*.yaml")}
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
        parts += _analyses(data, partial(draw, out / "figures" / name))
    rows = list(_claim_rows(known.values(), tables))
    stand_ins = [run for data in known.values() for run in data.stand_ins.values()]
    joined = [run for run in stand_ins if isinstance(run, RunCopy) and run not in pool]
    parts += ["## Radii\n", *matching_tables(cells.parent / "matchings")]
    parts += ["## Beyond the paper\n", *tables_beyond([*pool, *joined])]
    parts += ["## Claims\n", markdown_table(_HEADINGS, rows)]
    write_file(out / "tables.md", "\n".join(parts).encode())
    measured = [row for row in rows if row[_SEEDS] != "0"]
    cases = Counter(row[0] for row in rows if row[_SEEDS] == "0")
    listed = ", ".join(f"{claim} {count}" for claim, count in cases.items())
    without = fill(f"Open cases: {listed}.", 120, break_on_hyphens=False)
    claims = "\n".join([markdown_table(_HEADINGS, measured), "", without])
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
    yield markdown_table(names, sorted(rows)) + "\n"


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


def _analyses(data: TidySuite, draw: Callable[[Analysis], object]) -> Iterator[str]:
    """Draw finished cells and stand-ins, and yield their tables; none if other settings differ."""
    if not data.runs:
        return
    try:
        analysis = analyze([*data.stand_ins.values(), *data.runs.values()])
    except InvalidInputError as error:
        print(f"{data.loaded.suite.name}: no figures: {error}")
        return
    draw(analysis)
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
            yield f"### {title}\n\n{markdown_table((*columns, 'mean'), rows)}\n"


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
        return *start, interval_text(mean_interval(values.tolist())), "", "too few seeds to tell"
    p = sign_flip(gaps.sum(axis=0).astype(int).tolist())
    interval, holds = grid_interval(100 * gaps), "open"
    if interval is not None:
        sign = 1 if paper is None or paper >= 0 else -1
        low, high = sorted((sign * interval.lower, sign * interval.upper))
        holds = "yes" if low > 0 else "no, the opposite" if high < 0 else "not separated"
    return *start, interval_text(interval), "< 0.001" if p < 0.001 else f"{p:.3f}", holds


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
