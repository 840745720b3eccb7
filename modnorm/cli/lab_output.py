"""Output of the commands that show experiments of a lab."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from modnorm.cli.console import as_dict, emit_json, interval, on_one_line, percent, stdout, table
from modnorm.cli.progress import rewards
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import state_name
from modnorm.wire.run_messages import failure_text

if TYPE_CHECKING:
    from rich.table import Table


_HEADINGS = ("id", "name", "state", "jobs", "best", "top-K", "created")


def experiments_table(found: Sequence[experiments.Experiment]) -> "Table":
    """Return a line for each experiment; the note says why it failed or waits."""
    rows, notes = [_list_row(each) for each in found], [_note(each) for each in found]
    if any(notes):
        noted = [(*row, note) for row, note in zip(rows, notes, strict=True)]
        return table((*_HEADINGS, "note"), noted, {"note"})
    return table(_HEADINGS, rows)


def _note(experiment: experiments.Experiment) -> str:
    if experiment.error:
        return on_one_line(failure_text(experiment))
    return f"waiting: {on_one_line(experiment.waits_for)}" if experiment.waits_for else ""


def _list_row(experiment: experiments.Experiment) -> tuple[str, ...]:
    progress = experiment.progress
    return (
        experiment.id,
        on_one_line(experiment.spec.name) or "-",
        state_name(experiment.state),
        f"{progress.jobs_done}/{progress.jobs_total}",
        f"{progress.best_reward:.4f}" if progress.HasField("best_reward") else "-",
        f"{progress.threshold_reward:.4f}" if progress.HasField("threshold_reward") else "-",
        experiment.create_time.ToDatetime().isoformat(sep=" ", timespec="seconds"),
    )


def show_experiment(
    experiment: experiments.Experiment, *, as_json: bool, brief: bool = False
) -> None:
    """Print an experiment."""
    if as_json:
        emit_json(as_dict(experiment))
        return
    console = stdout()
    console.print(f"{experiment.id}  {state_name(experiment.state)}", soft_wrap=True)
    if experiment.error:
        console.print(failure_text(experiment), soft_wrap=True)
    if stopped := experiment.progress.candidates_stopped:
        total = experiment.spec.population.size
        console.print(f"{stopped} of {total} candidates were stopped early", soft_wrap=True)
    progress = experiment.progress
    if progress.updates_total:
        made = f"{progress.updates_done} of {progress.updates_total} updates are made"
        console.print(made, soft_wrap=True)
    if brief:
        return
    if experiment.state != experiments.EXPERIMENT_STATE_SUCCEEDED:
        console.print(", ".join(_progress(experiment)), soft_wrap=True)
    if experiment.states:
        console.print(table(("state", "development", "held-out"), _states(experiment)))
    elif rows := _ensembles(experiment):
        headings = ("ensemble", "held-out", "95 % Wilson", "right", "give a vote", "cut off")
        console.print(table(headings, rows))


def _progress(experiment: experiments.Experiment) -> list[str]:
    """Return the progress of an experiment; its last progress if it ended early."""
    progress, base = experiment.progress, experiment.base
    largest = max(experiment.spec.population.ensemble_sizes, default=1)
    known = base.selection_reward if base.HasField("selection_reward") else None
    parts = [
        f"jobs {progress.jobs_done}/{progress.jobs_total}",
        f"failed {progress.jobs_failed}",
        f"running {progress.jobs_running}",
    ]
    if experiment.state == experiments.EXPERIMENT_STATE_CALIBRATING:
        parts = [f"prompts calibrated {progress.examples_done}/{progress.examples_total}"]
    waiting = [f"waiting: {experiment.waits_for}"] if experiment.waits_for else []
    return [*parts, *rewards(progress, known, largest), *waiting]


def _states(experiment: experiments.Experiment) -> list[tuple[str, ...]]:
    """Return the states of an iterative run; a star marks the reported one."""
    return [
        (
            f"after {state.updates} updates" + (" *" if state.reported else ""),
            percent(state.development_metric if state.HasField("development_metric") else None),
            percent(state.heldout_metric if state.HasField("heldout_metric") else None),
        )
        for state in experiment.states
    ]


def _ensembles(experiment: experiments.Experiment) -> list[tuple[str, ...]]:
    from modnorm.analysis.uncertainty import accuracy_interval

    base, heldout = experiment.base, experiment.provenance.heldout_rows
    rows: list[tuple[str, ...]] = []
    votes = [
        accuracy_interval(each.metric, each.rows, each.correct) for each in experiment.ensembles
    ]
    if base.HasField("heldout_metric"):
        # The votes tell whether the metric is the share of right rows.
        bounds = accuracy_interval(base.heldout_metric, heldout) if all(votes) else None
        rows.append(("base", percent(base.heldout_metric), interval(bounds), "", "", ""))
    rows += [
        (
            f"N={found.population} K={found.ensemble_size}",
            percent(found.metric),
            interval(bounds),
            f"{found.correct}/{found.rows}",
            *(
                percent(count / found.answers if found.answers else None)
                for count in (found.valid, found.truncated)
            ),
        )
        for found, bounds in zip(experiment.ensembles, votes, strict=True)
    ]
    return rows
