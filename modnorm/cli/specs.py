"""`modnorm init`, `validate`, `plan`, `tasks` and `methods`: specs before they run."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.cli.console import amount, echo, emit, emit_json, note, output, say
from modnorm.cli.options import (
    Seed,
    SpecFile,
    SpecFiles,
    arg,
    check_model,
    check_prompts,
    check_spec,
    opt,
    read_spec,
    seeded,
    settings,
)
from modnorm.errors import ConflictError, InvalidInputError, ModnormError, UnavailableError
from modnorm.files import write_fault, write_file

if TYPE_CHECKING:
    from modnorm.spec import ExperimentSpec
    from modnorm.suites.cost_estimate import CostEstimate

_TEMPLATE = Path(__file__).parents[1] / "bundled" / "spec.yaml"


def init(file: Annotated[Path, arg("FILE", "Where the spec goes.")] = Path("spec.yaml")) -> None:
    """Write a commented spec that runs as it is.

    It searches around the bundled model, without a network or a GPU. Its comments explain each
    field.
    """
    text = _TEMPLATE.read_text(encoding="utf-8").replace("FILE", str(file))
    text = text.replace(f"runs/{file}", f"runs/{file.stem}")
    if file.exists():
        raise ConflictError(
            f"{file} exists", field="file", remedy="name a new file, or remove this one"
        )
    try:
        write_file(file, text.encode())
    except OSError as error:
        raise write_fault(file, error, "file") from error
    emit({"file": str(file)}, f"{file} is written; next: modnorm run {file}")


def validate(spec_files: SpecFiles) -> None:
    """Check specs without running them.

    Checks syntax, fields, names, rows, profile and model as far as they are on this machine, as
    `modnorm run` does before it starts. It asks the Hugging Face Hub whether it has the model;
    nothing is downloaded, and of the weights only names and shapes are read. Names the inputs that
    only a run can check.
    Every file is checked; exit code 2 if one is refused.
    """
    entries = []
    for path in spec_files:
        try:
            entries.append(_checked(path))
        except ModnormError as error:
            fault = {"message": error.message, "field": error.field, "remedy": error.remedy}
            entries.append({"file": str(path), "valid": False, "error": str(error), **fault})
            if not output.as_json:
                say(f"error: {error}")
    emit_json(entries)
    if not all(entry["valid"] for entry in entries):
        raise typer.Exit(2)


def _checked(path: Path) -> dict[str, object]:
    """Check a spec, print what a run has to check, and return the entry of the document."""
    from modnorm.checkpoint.reference import find_local_checkpoint
    from modnorm.spec import located
    from modnorm.spec_checks import load_splits, remarks_on_rows

    spec = read_spec(path)
    check_spec(spec, path)
    obstacles, absent = [], _unchecked(spec)  # not the fault of the spec
    try:
        check_model(spec)
    except UnavailableError as error:
        obstacles.append(error.message)
    try:
        settings().check_cache()
    except InvalidInputError as error:
        obstacles.append(error.reason)
    remarks = []
    if not any(name.startswith(("task", "iterative", "distillation")) for name in absent):
        splits = load_splits(spec, roots=None, folders=settings().split_folders)
        remarks = remarks_on_rows(spec, splits)
        checkpoint = find_local_checkpoint(spec.model.name, spec.model.revision)
        if checkpoint is not None:
            with located(path):
                check_prompts(spec, splits, checkpoint)
    names = ", ".join(absent)
    rest = f"; not on this machine, so the run downloads and checks: {names}" if names else ""
    echo(f"{path}: valid{rest}")
    for obstacle in obstacles if not output.as_json else ():
        note(f"{obstacle}; a run on this machine would fail")
    for remark in remarks if not output.as_json else ():
        note(remark)
    return {
        "file": str(path),
        "valid": True,
        "unchecked": absent,
        "obstacles": obstacles,
        "remarks": remarks,
    }


def _unchecked(spec: "ExperimentSpec") -> list[str]:
    """Return the inputs of a spec that are not on this machine."""
    from modnorm.checkpoint.reference import find_local_checkpoint
    from modnorm.spec_checks import rows_of
    from modnorm.tasks.row_loading import needs_hub

    folders = settings().split_folders
    absent = [
        f"{field} ({rows.source})"
        for field, rows in rows_of(spec).items()
        if needs_hub(rows.source, folders, field=field)
    ]
    if find_local_checkpoint(spec.model.name, spec.model.revision) is None:
        absent.insert(0, f"model ({spec.model.name})")
    return absent


def plan(
    spec_file: SpecFile,
    *,
    like: Annotated[
        Path | None,
        opt("--like RUN", "Finished run of the same model and task; its speed is used."),
    ] = None,
    gpu: Annotated[
        str | None, opt("--gpu NAME", "H100 or H200 [default: that of this machine].")
    ] = None,
    workers: Annotated[
        int, opt("--workers NUMBER", "Workers that share the jobs.", min=1, max=100_000)
    ] = 1,
    seed: Seed = None,
) -> None:
    """Estimate jobs, tokens and hours of a spec.

    Counts are upper bounds: experts that several ensembles share answer once.
    Hours are rough unless --like names a finished run.
    """
    from modnorm.spec import located
    from modnorm.suites.cost_estimate import estimate_cost, rate_of_run, require_known

    require_known(gpu)
    spec = seeded(read_spec(spec_file), seed)
    rate = rate_of_run(like) if like is not None else None
    if rate and rate.measured and rate.measured != (spec.model.name, spec.task.name):
        note(f"{like} is a run of {' on '.join(rate.measured)}: this spec's speed may differ")
    with located(spec_file):
        estimate = estimate_cost(spec, rate, gpu=gpu)
    if emit_json({**asdict(estimate), "workers": workers}):
        return
    figures = _cost(estimate, workers)
    if spec.distillation is not None:
        figures["trainings"] = "on top, not estimated"
    for name, figure in figures.items():
        echo(f"{name:22}{figure}")


def _cost(estimate: "CostEstimate", workers: int) -> dict[str, str]:
    figures = {
        "candidates": f"{estimate.candidates:,}",
        "jobs, at most": f"{estimate.jobs:,}",
        "evaluations, at most": f"{estimate.evaluations:,}",
        "tokens, at most": f"{estimate.tokens:,}",
        "time": "not known: the model is not on this machine; name a finished run with --like",
    }
    if estimate.phases is not None:
        shared = ("search", "vote")
        seconds = {
            name: each / (workers if name in shared else 1)
            for name, each in estimate.phases.items()
        }
        figures["time"] = (
            f"about {rough_time(sum(seconds.values()) / 3600)} with {amount(workers, 'worker')}, "
            f"from {estimate.basis}"
        )
        parts = (f"{name} {each:,.0f}" for name, each in seconds.items() if each)
        figures["seconds"] = ", ".join(parts)
    return figures


def rough_time(hours: float) -> str:
    """Return a rough time in the unit that suits it."""
    minutes = 60 * hours
    if minutes >= 120:
        return f"{hours:,.1f} hours"
    if minutes >= 1.5:
        return f"{minutes:.0f} minutes"
    return "a minute" if minutes >= 0.75 else f"{max(2, 60 * minutes):.0f} seconds"


def tasks() -> None:
    """List the tasks.

    The first scorer of a task is its default. Tasks of installed packages are listed too.
    """
    from modnorm.tasks.registry import scorer_names, task_names, task_summary

    found = {name: (list(scorer_names(name)), task_summary(name)) for name in task_names()}
    document = [
        {"name": name, "scorers": scorers, "summary": summary}
        for name, (scorers, summary) in found.items()
    ]
    lines = [
        f"{name:16}{summary}\n{'':16}scorers: {', '.join(scorers)}"
        for name, (scorers, summary) in found.items()
    ]
    emit(document, "\n".join(lines))


def methods() -> None:
    """List the methods.

    A method with a profile calibrates the model's sensitivities before its first run. A method
    with low-rank noise takes `rank` and `target_modules`.
    """
    from modnorm.perturbation.methods import METHODS

    names = ("needs_profile", "low_rank", "summary")
    emit_json(
        [
            {"name": name} | {each: getattr(one, each) for each in names}
            for name, one in METHODS.items()
        ]
    )
    for name, one in METHODS.items():
        profile = " Needs a profile." if one.needs_profile else ""
        rank = " Takes rank and target_modules." if one.low_rank else ""
        echo(f"{name:36}{one.summary}{profile}{rank}")
