"""The files of a finished run, written and shown."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.cli.console import echo, echo_table, emit_json, interval, note, percent
from modnorm.client.client import Client
from modnorm.client.run_directory import RunDirectory, spec_file
from modnorm.errors import InvalidInputError
from modnorm.v1 import experiment_pb2 as experiments

if TYPE_CHECKING:
    from modnorm.analysis.distillation import (
        Accuracy,
        ComparedEntry,
        DistillationDocument,
        RoundEntry,
    )
    from modnorm.analysis.document import AnswerShares, BaseEntry, ExpertEntry, ResultsDocument
    from modnorm.analysis.statistics import IterativeEntry, StateEntry


def write_results(
    client: Client, experiment: experiments.Experiment, directory: RunDirectory
) -> Path:
    """Fetch a finished experiment, write its files, and return where the report is."""
    from modnorm.analysis.document import (
        describe_lost_search,
        describe_shortcuts,
        describe_truncated,
    )
    from modnorm.analysis.environments import describe_mixed
    from modnorm.client.fetching import save_run

    save_run(client, experiment.id, directory.path)
    document = read_results(directory)
    notes = (
        describe_truncated(document),
        describe_lost_search(document),
        describe_shortcuts(document),
        describe_mixed(document["mixed_environments"]),
    )
    for each in filter(None, notes):
        note(each)
    return directory.path / "report.html"


def read_results(directory: RunDirectory) -> "ResultsDocument":
    """Return the results that `write_results` wrote."""
    from modnorm.analysis.run import load_run

    return load_run(directory.path).document


def print_results(directory: Path, document: "ResultsDocument") -> None:
    """Print the figures and the seconds of a finished run."""
    from modnorm.analysis.run_files import read_seconds

    print_table(document)
    if seconds := read_seconds(directory):
        echo(seconds)


def print_table(document: "ResultsDocument") -> None:
    """Print the held-out figures of a run: base, rank 1 by selection, every ensemble."""
    if iterative := document["iterative"]:
        rows = [(_state_name(state, iterative), *_figures(state)) for state in iterative["states"]]
        headings = ("reward around", "development", "held-out", "95 % Wilson")
        echo_table((_title(document["spec"]), *headings), rows)
        return
    experts, ensembles = document["experts"], document["ensembles"]
    rows = [_model_row("base", document["base"])]
    if experts:
        rows.append(_model_row("rank 1 by selection", experts[0]))
    rows += [
        (
            f"N={found['population']} K={found['ensemble_size']}",
            percent(found["metric"]),
            interval(found["interval"]),
            *_shares(found["shares"]),
        )
        for found in ensembles
    ]
    headings = ("held-out", "95 % Wilson", "give a vote", "cut off")
    echo_table((_title(document["spec"]), *headings), rows)


def show_directory(directory: Path) -> None:
    """Print the results of a run directory, or of each run directory inside it."""
    from modnorm.analysis.distillation import is_distillation, load_distillation

    if is_distillation(directory):
        document = load_distillation(directory)
        emit_json(document)
        print_distillation(document)
        return
    runs = _runs_of(directory)
    found = _read_all(runs)
    documents = list(found.values())
    if emit_json(documents[0] if runs == [directory] and documents else documents):
        return
    for run in runs:
        if run in found:
            echo(f"{run}  finished")
            print_run(run)
        elif not _is_finished(run):
            echo(f"{run}  not finished; the command that started it resumes it")


def print_run(run: Path) -> None:
    """Print the results of a finished run, with remarks on them; of predictions their file."""
    from modnorm.analysis.document import describe_overlap, describe_truncated
    from modnorm.analysis.environments import describe_mixed
    from modnorm.analysis.run_files import PREDICTIONS

    if (run / PREDICTIONS).is_file():
        echo(str(run / PREDICTIONS))
        return
    results = read_results(RunDirectory(run))
    print_results(run, results)
    remarks = (
        describe_overlap(results),
        describe_truncated(results),
        describe_mixed(results["mixed_environments"]),
    )
    for remark in filter(None, remarks):
        note(remark)


def _read_all(runs: Sequence[Path]) -> "dict[Path, ResultsDocument]":
    """Return the results of finished runs; of several, damaged ones are left out with a note."""
    found = {}
    for run in filter(_is_finished, runs):
        try:
            found[run] = read_results(RunDirectory(run))
        except InvalidInputError as error:
            if len(runs) == 1:
                raise
            note(f"{run} is left out: {error.message}")
    return found


def _is_finished(run: Path) -> bool:
    return (run / "results.json").is_file()


def _runs_of(directory: Path) -> list[Path]:
    from modnorm.analysis.run_files import folder_remedy

    if spec_file(directory).is_file():
        return [directory]
    inside = sorted(child for child in directory.iterdir() if spec_file(child).is_file())
    if not inside:
        raise InvalidInputError(
            f"{directory} is not a run directory",
            field="run",
            remedy=folder_remedy(directory)
            or "name a directory that `modnorm run` wrote, or the id of an experiment",
        )
    return inside


def _model_row(name: str, model: "BaseEntry | ExpertEntry") -> tuple[str, ...]:
    figures = percent(model["heldout_metric"]), interval(model["heldout_interval"])
    return name, *figures, *_shares(model["heldout_shares"])


def _shares(shares: "AnswerShares") -> tuple[str, str]:
    """Return the shares of answers that give a vote, and of those that the cap cut off."""
    return percent(shares["valid"]), percent(shares["truncated"])


def _state_name(state: "StateEntry", iterative: "IterativeEntry") -> str:
    """Return the name of a state; a star marks the reported one."""
    name = f"after {state['updates']} updates" if state["updates"] else "base"
    return f"{name} *" if state["updates"] == iterative["reported"] else name


def _figures(state: "StateEntry") -> tuple[str, ...]:
    reward = state["mean_reward"]
    return (
        "-" if reward is None else f"{reward:.4f}",
        percent(state["development_metric"]),
        percent(state["heldout_metric"]),
        interval(state["heldout_interval"]),
    )


def _title(spec: Mapping[str, object]) -> str:
    method = spec["method"]
    name = method["name"] if isinstance(method, dict) else ""
    return str(spec["name"] or name)


def print_distillation(document: "DistillationDocument") -> None:
    """Print a row for each model of each round, the gain that the student keeps, and the work."""
    from modnorm.analysis.distillation import describe_gain, total_budget

    headings = ("round", "model", "development", "held-out", "95 % Wilson")
    rows = [row for each in document["rounds"] for row in _rows(each, document)]
    echo_table(headings, rows)
    echo(f"* {describe_gain(document)}")
    spent = total_budget(document["rounds"])
    echo(
        f"{spent['answers']:,} answers, {spent['tokens']:,} tokens generated; "
        f"{spent['training_tokens']:,} tokens and {spent['training_flops']:.3g} operations in "
        f"{spent['training_seconds']:,.0f} s of training"
    )


def print_side_by_side(entries: "Sequence[ComparedEntry]") -> None:
    """Print held-out figures and work of each run; of distillations those of the best round."""
    headings = ("", *(entry["run"] for entry in entries))
    names = (
        "best round",
        "base",
        "rank 1 by selection",
        "vote",
        "student",
        "answers",
        "tokens",
        "training operations",
    )
    echo_table(headings, zip(names, *map(_column, entries), strict=True))


def _column(entry: "ComparedEntry") -> tuple[str, ...]:
    figures = (entry["base"], entry["best_expert"], entry["vote"], entry["student"])
    return (
        str(entry["best_round"] or ""),
        *(" ".join(_shown(one)).strip() if one else "" for one in figures),
        f"{entry['answers']:,}",
        f"{entry['tokens']:,}",
        f"{entry['training_flops']:.3g}",
    )


def _rows(entry: "RoundEntry", document: "DistillationDocument") -> Iterator[tuple[str, ...]]:
    number, search = str(entry["round"]), entry["search"]
    if search:
        yield number, "rank 1 by selection", "", *_shown(search["best_expert"])
        yield number, f"vote of {search['ensemble_size']}", "", *_shown(search["vote"])
    name = "student" if search else "base"
    mark = " *" if entry["round"] == document["best_round"] else ""
    development = percent(entry["development"]["metric"])
    yield number, f"{name}{mark}", development, *_shown(entry["heldout"])


def _shown(value: "Accuracy") -> tuple[str, str]:
    return percent(value["metric"]), interval(value["interval"])
