"""The work of `modnorm rescore`: open a run, judge its completions, show the changes."""

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.analysis.saved_run import SavedRun
from modnorm.cli.console import emit_json, percent, say, stdout, table
from modnorm.cli.interruption import interruptible
from modnorm.cli.options import check_output_file
from modnorm.cli.progress import counted
from modnorm.cli.runs import opened_run
from modnorm.client.rescoring import check_has_votes, rescore_run, rescored_document
from modnorm.files import encode_json, write_file
from modnorm.sandbox import Sandbox
from modnorm.spec import TaskSpec
from modnorm.tasks import check_sandbox, get_task, runs_programs
from modnorm.wire.remote_sandbox import RemoteSandbox

if TYPE_CHECKING:
    from rich.table import Table

    from modnorm.analysis.finished_run import FinishedRun
    from modnorm.client.rescoring import Rescored
    from modnorm.sandbox import Runner
    from modnorm.tasks import Task


def rescore_and_show(
    run: str,
    *,
    scorer: str | None,
    server: str | None,
    sandbox: str | None,
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Judge the stored completions of a run by another scorer; write and show the result.

    The default scorer is that of the task, the default sandbox one of this process.
    """
    with interruptible("stopped; nothing was written"), opened_run(run, server) as found:
        check_has_votes(found.spec)
        named = found.spec.task
        _task(named, scorer)  # report a wrong name before a sandbox starts
        with _sandboxed(named.name, sandbox) as (runner, judges):
            task = _task(named, scorer, runner)
            target = out or _place(found, task.scorer)
            if target is not None:
                check_output_file(target)
            with counted("judging", quiet=quiet) as on_progress:
                rescored = rescore_run(found, task, judges=judges, on_progress=on_progress)
    document = rescored_document(found, rescored)
    if target is not None:
        write_file(target, encode_json(document))
    if as_json:
        emit_json(document)
        return
    _show(rescored)
    if target is not None:
        say(f"written to {target}")


def _place(run: "FinishedRun", scorer: str) -> Path | None:
    """Return the file in the run's own directory; None for a run of a lab."""
    return run.path / f"rescored-{scorer}.json" if isinstance(run, SavedRun) else None


def _task(named: TaskSpec, scorer: str | None, sandbox: "Runner | None" = None) -> "Task":
    """Return the task of a run; a declared task is read from the stored text."""
    return get_task(named.name, scorer=scorer, sandbox=sandbox, declaration=named.declaration)


@contextmanager
def _sandboxed(task: str, target: str | None) -> Iterator[tuple["Runner | None", Executor | None]]:
    """Yield a healthy sandbox and its threads, if the task runs programs."""
    if not runs_programs(task):
        yield None, None
        return
    with RemoteSandbox(target) if target else Sandbox() as sandbox:
        check_sandbox(task, sandbox)
        with ThreadPoolExecutor(os.cpu_count(), "judge") as judges:
            yield sandbox, judges


def _show(rescored: "Rescored") -> None:
    console = stdout()
    console.print(_table(rescored))
    for name, judged in (("selection", rescored.selection), ("held-out", rescored.heldout)):
        console.print(f"{judged.changed} of {judged.total} {name} answers are judged otherwise")
    missing = {index for ensemble in rescored.ensembles for index in ensemble.reselected.missing}
    if missing:
        names = ", ".join(map(str, sorted(missing)))
        say(f"selected anew, but without held-out answers: {names}")


def _table(rescored: "Rescored") -> "Table":
    base, first = rescored.base.heldout_metric, rescored.rank_1
    rows = [
        ("base", percent(base.old), percent(base.new), ""),
        (
            "rank 1 by selection",
            percent(first.metric.old),
            percent(first.metric.new),
            percent(first.reselected_metric),
        ),
    ]
    rows += [
        (
            f"N={found.population} K={found.ensemble_size}",
            percent(found.metric.old),
            percent(found.metric.new),
            percent(found.reselected.metric),
        )
        for found in rescored.ensembles
    ]
    return table(("held-out", rescored.old_scorer, rescored.new_scorer, "selected anew"), rows)
