"""The replication's tables beyond the paper, from recorded rewards, votes and judgements."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pandas as pd

from modnorm.analysis.parquet_files import read_ballots
from modnorm.analysis.uncertainty import ConfidenceInterval
from modnorm.cli.console import percent
from modnorm.files import encode_json
from modnorm.radius.artifact import MatchingDocument, RadiusArtifact
from modnorm.radius.functional_matching import choice_shares
from modnorm.search.answers import BASE_INDEX
from scripts import recorded_answers as recorded
from scripts.run_copies import ORIGIN, RunCopy, write_archive

_RADIUS = "radius.json"
_ORDERS = 10
"""Random orders of the selection rows, of which selections by fewer rows are means."""


def tables_beyond(pool: Sequence[RunCopy]) -> Iterator[str]:
    """Yield the tables that answer further questions, by group of runs that differ in seed."""
    groups = defaultdict[str, dict[object, RunCopy]](dict)
    # Of two runs of a seed the one with more (N, K) counts.
    for run in sorted(pool, key=lambda run: len(run.ensembles)):
        groups[_name(run)][run.document["spec"]["population"]["seed"]] = run
    runs = {
        name: {seed: Recorded(run) for seed, run in groups[name].items()}
        for name in sorted(groups)
    }
    data = {f"{name}, seeds: {len(found)}": [*found.values()] for name, found in runs.items()}
    tables = {
        "How many selection rows, racing and Wilson bounds": (_SELECTING, _selection_rows),
        "Is K = 25 of N = 25 enough?": (_UNSELECTED, _unselected_rows),
        "Coverage and agreement (points of the gain over the base)": (_TERMS, _term_rows),
        "Accuracy (%) of the answered rows, by agreement": (_CONFIDENT, _confidence_rows),
    }
    for title, (headings, rows) in tables.items():
        found = [(name, *row) for name, members in data.items() for row in rows(members)]
        if found:
            yield f"### {title}\n\n{markdown_table(('runs', *headings), found)}\n"
    if same := [*_same_candidate_rows(runs)]:
        yield f"### The same candidates under Modular Norm\n\n{markdown_table(_SAME, same)}\n"
    if rescored := [row for run in pool for row in _rescored_rows(run)]:
        table = markdown_table(("run", *_RESCORED), rescored)
        yield f"### The same answers, by another scorer\n\n{table}\n"


def pack_matching(directory: Path, spec: Path, folder: Path, origin: Mapping[str, str]) -> Path:
    """Write an archive of a finished functional matching and its spec; return its path."""
    artifact = RadiusArtifact.load(directory / _RADIUS)
    document = artifact.document
    assert isinstance(document, MatchingDocument)
    archive = folder / f"{document.model.name.rpartition('/')[2]}_{document.task}.zip"
    members = {
        "spec.yaml": spec.read_bytes(),
        _RADIUS: artifact.to_json().encode(),
        ORIGIN: encode_json({**origin, "card": document.environment["device"]}),
    }
    write_archive(archive, members)
    return archive


def matching_tables(folder: Path) -> Iterator[str]:
    """Yield the table of each recorded functional matching, with what made it."""
    for archive in sorted(folder.glob("*.zip")):
        with ZipFile(archive) as file:
            artifact = RadiusArtifact.from_json(file.read(_RADIUS).decode())
            origin = json.loads(file.read(ORIGIN))
        document = artifact.document
        assert isinstance(document, MatchingDocument)
        same, shares = document.reference, choice_shares(document)
        rows = [(f"isotropic {same.radius:g}", f"{same.kl:.4f}", f"{same.hidden:.4f}", "", "")]
        for each, share in zip(document.radii, shares, strict=True):
            found = "" if each.objective is None else f"{each.objective:.3f}"
            figures = f"{each.kl:.4f}", f"{each.hidden:.4f}", found
            rows.append((f"{each.radius:g}", *figures, f"{100 * share:.0f}"))
        table = markdown_table(("R", "KL", "hidden", "J", "chosen by resamples (%)"), rows)
        made = (
            f"`{origin['command']}` at {origin['commit']} on an {origin['card']}; {origin['note']}"
        )
        yield f"### Functional matching of {archive.stem}\n\n{made}.\n\n{table}\n"


def _name(run: RunCopy) -> str:
    """Return the name of the runs that differ in seed only."""
    spec = run.document["spec"]
    model, size = spec["model"]["name"].rpartition("/")[2], spec["population"]["size"]
    return f"{model} {spec['task']['name']} {spec['method']['name']} N={size}"


class Recorded:
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
        places = {each.place for each in run.ensembles if self.ballots.keys() >= {*each.experts}}
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
_SAME = (
    "runs",
    "seed",
    "correlation of the selection rewards",
    "of the best 25 also Modular Norm's",
)
_RESCORED = (
    "scorer",
    "selection answers with another reward or vote (%)",
    "held-out answers with another reward or vote (%)",
    "metric of",
    "by its own scorer",
    "by this scorer",
)
_THIRD = ((1.0, 33), (0.5, 67), (0.25, 133))
"""A race at a third of the cost of the full search with 200 rows."""


def _selection_rows(runs: Sequence[Recorded]) -> Iterator[tuple[str, ...]]:
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


def _unselected_rows(runs: Sequence[Recorded]) -> Iterator[tuple[str, ...]]:
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
    told = f"{value:.0f} {interval_text(interval)}".rstrip()
    yield (*(_resampled(100 * grid, 1) for grid in grids), told)


def _term_rows(runs: Sequence[Recorded]) -> Iterator[tuple[str, ...]]:
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


def _confidence_rows(runs: Sequence[Recorded]) -> Iterator[tuple[str, ...]]:
    place, found = _largest(runs)
    members = [
        (votes["support"].to_numpy(dtype=float), votes["correct"].to_numpy(dtype=float))
        for _, votes in found
    ]

    def accuracy(unanswered: float, seed: int, weights: recorded.Floats) -> recorded.Floats:
        return 100 * recorded.confident_accuracy(*members[seed], weights, unanswered)

    figures = [partial(accuracy, unanswered) for unanswered in (0.0, 0.1, 0.2, 0.5)]
    yield from _row_of_figures(place, members, figures, ".1f")


def _same_candidate_rows(
    runs: Mapping[str, Mapping[object, Recorded]],
) -> Iterator[tuple[str, ...]]:
    """Yield how alike Modular Norm and another method rank the candidates of the same seeds."""
    for name, found in runs.items():
        model, task, method, size = name.rsplit(" ", 3)
        if method == "modular_norm":
            continue
        full = runs.get(f"{model} {task} modular_norm {size}", {})
        for seed in sorted(found.keys() & full.keys(), key=str):
            one, other = found[seed], full[seed]
            if one.is_whole and other.is_whole:
                means = one.rewards.mean(axis=1), other.rewards.mean(axis=1)
                best = ({*np.argsort(-each, kind="stable")[:25].tolist()} for each in means)
                shared = len(set.intersection(*best))
                yield name, str(seed), f"{np.corrcoef(*means)[0, 1]:.2f}", str(shared)


def _rescored_rows(run: RunCopy) -> Iterator[tuple[str, ...]]:
    """Yield the metrics of a run's base and votes as another scorer judges the same answers."""
    name = f"{_name(run)}, seed {run.document['spec']['population']['seed']}"
    for found in run.rescored():
        splits = found["selection"], found["heldout"]
        changed = [f"{100 * each['changed'] / each['total']:.2f}" for each in splits]
        metrics = {
            "base": found["base"]["heldout_metric"],
            **{
                f"N={each['population']} K={each['ensemble_size']}": each["metric"]
                for each in found["ensembles"]
            },
        }
        for voters, metric in metrics.items():
            told = (percent(one) for one in (metric["old"], metric["new"]))
            yield (name, found["new_scorer"], *changed, voters, *told)


def _largest(
    runs: Sequence[Recorded],
) -> tuple[tuple[int, int], list[tuple[Recorded, pd.DataFrame]]]:
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
        cells = (f"{value:{form}} {interval_text(bounds)}" for value, bounds in found)
        yield (*map(str, place), *cells)


def _resampled(grid: recorded.Floats, digits: int) -> str:
    """Return the mean of a grid and its interval over its lines and columns."""
    seeds, columns = grid.shape
    value, interval = recorded.resampled(
        lambda seed, weights: weights @ grid[seed] / columns, seeds, columns
    )
    return f"{value:.{digits}f} {interval_text(interval, digits=digits)}"


def interval_text(interval: ConfidenceInterval | None, *, digits: int = 1) -> str:
    """Return `[lower, upper]`, or nothing where no interval is known."""
    if interval is None:
        return ""
    # Plus 0.0: a limit that is zero but for rounding has no sign.
    low, high = (round(limit, digits) + 0.0 for limit in interval)
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def markdown_table(
    headings: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]
) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
