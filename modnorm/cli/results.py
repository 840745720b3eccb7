"""The files of a finished run, written and shown."""

from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.cli.console import echo, echo_table, emit_json, interval, note, percent
from modnorm.client.client import Client
from modnorm.client.run_directory import RunDirectory
from modnorm.errors import InvalidInputError
from modnorm.v1 import experiment_pb2 as experiments

if TYPE_CHECKING:
    from modnorm.analysis.distillation import DistillationDocument
    from modnorm.analysis.document import BaseEntry, ExpertEntry, ResultsDocument
    from modnorm.analysis.run import Run


def write_results(
    client: Client,
    experiment: experiments.Experiment,
    directory: RunDirectory,
    *,
    of_suite: bool = False,
) -> None:
    """Fetch a finished experiment, write its files, and print remarks on them.

    Remarks on a cell of a suite begin with its id.
    """
    from modnorm.analysis.document import remarks
    from modnorm.analysis.run import load_run
    from modnorm.client.fetching import save_run

    save_run(client, experiment.id, directory.path)
    for name, remark in remarks(load_run(directory.path).document).items():
        if remark and of_suite:
            note(f"{directory.path.name}: {remark}")
        elif remark and name != "overlap":  # the lab told of it at the start
            note(remark)


def print_results(run: "Run") -> None:
    print_table(run.document)
    if seconds := run.seconds():
        echo(seconds)


def print_table(document: "ResultsDocument") -> None:
    """Print the held-out figures of a run: base, rank 1 by selection, every ensemble."""
    title = document["spec"]["name"] or document["spec"]["method"]["name"]
    if iterative := document["iterative"]:
        rows = []
        for state in iterative["states"]:
            name = f"after {state['updates']} updates" if state["updates"] else "base"
            star = " *" if state["updates"] == iterative["reported"] else ""
            reward = state["mean_reward"]
            rows.append(
                (
                    f"{name}{star}",
                    "-" if reward is None else f"{reward:.4f}",
                    percent(state["development_metric"]),
                    percent(state["heldout_metric"]),
                    interval(state["heldout_interval"]),
                )
            )
        headings = ("reward around", "development", "held-out", "95 % Wilson")
        echo_table((title, *headings), rows)
        return
    models: list[tuple[str, BaseEntry | ExpertEntry]] = [("base", document["base"])]
    models += [("rank 1 by selection", expert) for expert in document["experts"][:1]]
    figures = [
        (name, one["heldout_metric"], one["heldout_interval"], one["heldout_shares"])
        for name, one in models
    ]
    figures += [
        (
            f"N={one['population']} K={one['ensemble_size']}",
            one["metric"],
            one["interval"],
            one["shares"],
        )
        for one in document["ensembles"]
    ]
    echo_table(
        (title, "held-out", "95 % Wilson", "give a vote", "cut off"),
        (
            (
                name,
                percent(metric),
                interval(bounds),
                percent(shares["valid"]),
                percent(shares["truncated"]),
            )
            for name, metric, bounds, shares in figures
        ),
    )


def show_directory(directory: Path) -> None:
    """Print the results of a run directory, or of each run directory inside it.

    Of several runs, damaged ones are left out with a note, and those without results say so.
    """
    from modnorm.analysis.distillation import is_distillation, load_distillation
    from modnorm.analysis.run import load_run
    from modnorm.analysis.run_files import PREDICTIONS, RESULTS, SPEC, not_a_run, runs_inside

    runs = [run for run in runs_inside(directory) if (run / SPEC).is_file()]
    if not runs:
        raise not_a_run(directory, ", or the id of an experiment")
    is_one = runs[0] == directory
    found: dict[Path, ResultsDocument | DistillationDocument | None] = {}
    for run in runs[:1] if is_one else runs:
        try:
            if is_distillation(run):
                found[run] = load_distillation(run)
            else:
                is_wanted = is_one or (run / RESULTS).is_file()
                found[run] = load_run(run).document if is_wanted else None
        except InvalidInputError as error:
            if is_one or len(runs) == 1:
                raise
            note(f"{run} is left out: {error.message}")
    documents = [document for document in found.values() if document is not None]
    if emit_json(documents[0] if is_one else documents):
        return
    for run, document in found.items():
        if document is None and not (run / PREDICTIONS).is_file():
            echo(f"{run}  no results: its command resumes it, or prints the error")
        else:
            echo(f"{run}  finished")
            print_run(run)


def print_run(run: Path) -> None:
    """Print the results in a directory, with remarks on them; of predictions their file."""
    from modnorm.analysis.distillation import is_distillation, load_distillation
    from modnorm.analysis.document import remarks
    from modnorm.analysis.run import load_run
    from modnorm.analysis.run_files import PREDICTIONS

    if (run / PREDICTIONS).is_file():
        echo(str(run / PREDICTIONS))
        return
    if is_distillation(run):
        print_distillation(load_distillation(run))
        return
    results = load_run(run)
    print_results(results)
    for remark in filter(None, remarks(results.document).values()):
        note(remark)


def print_distillation(document: "DistillationDocument") -> None:
    """Print a row for each model of each round, the gain that the student keeps, and the work."""
    from modnorm.analysis.distillation import describe_gain, total_budget

    models = []
    for entry in document["rounds"]:
        search, name = entry["search"], "base"
        if search:
            name = "student"
            models.append((entry, "rank 1 by selection", "", search["best_expert"]))
            models.append((entry, f"vote of {search['ensemble_size']}", "", search["vote"]))
        mark = " *" if entry["round"] == document["best_round"] else ""
        development = percent(entry["development"]["metric"])
        models.append((entry, f"{name}{mark}", development, entry["heldout"]))
    echo_table(
        ("round", "model", "development", "held-out", "95 % Wilson"),
        (
            (
                str(entry["round"]),
                name,
                development,
                percent(heldout["metric"]),
                interval(heldout["interval"]),
            )
            for entry, name, development, heldout in models
        ),
    )
    echo(f"* {describe_gain(document)}")
    spent = total_budget(document["rounds"])
    echo(
        f"{spent['answers']:,} answers, {spent['tokens']:,} tokens generated; "
        f"{spent['training_tokens']:,} tokens and {spent['training_flops']:.3g} operations in "
        f"{spent['training_seconds']:,.0f} s of training"
    )
