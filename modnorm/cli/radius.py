"""`modnorm tune` and `match`: choice of a radius, by development rows or without labels."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from modnorm.cli.console import (
    echo,
    echo_table,
    emit_json,
    interruptible,
    note,
    percent,
    say,
    stderr,
)
from modnorm.cli.options import (
    LabServer,
    Out,
    SpecFile,
    check_spec,
    numbers,
    opt,
    read_unsettled_spec,
    settings,
)
from modnorm.errors import EvaluationError, InvalidInputError, ModnormError
from modnorm.files import write_file
from modnorm.spec_limits import MAX_SEED

if TYPE_CHECKING:
    from modnorm.radius.artifact import GridDocument, MatchingDocument, MatchingSettings
    from modnorm.spec import ExperimentSpec
    from modnorm.v1 import experiment_pb2 as experiments

Rows = tuple[tuple[str, ...], Sequence[tuple[str, ...]]]
"""Headings and lines of a table."""
_RESUMES = "stopped; the same command resumes here"


def tune(
    spec_file: SpecFile,
    *,
    radii: Annotated[str, opt("--radii --sigmas R,R,...", "Scales to try.")],
    out: Out = None,
    seeds: Annotated[str, opt("--seeds S,S,...", "Population seeds.")] = "39,40,41",
    heldout: Annotated[
        str | None,
        opt(
            "--heldout ROWS",
            "Development rows, required: a source, or for instance '{source: dev.jsonl, "
            "offset: 200, limit: 100}'. No held-out row of the spec may be among them.",
        ),
    ] = None,
    ensemble_size: Annotated[
        int | None, opt("--ensemble-size K", "Ensemble to compare [default: the largest].", min=1)
    ] = None,
    server: LabServer = None,
) -> None:
    """Choose the radius with the best ensemble on development rows.

    For randopt it is sigma. Every radius is tried with every seed; ties go to the smaller radius.
    The same command resumes an interrupted one; a finer grid reuses the trials of a coarser one. A
    spec may name the artifact, {artifact: DIR/radius.json}, instead of a radius.
    """
    spec = read_unsettled_spec(spec_file)
    specs = _plan_trials(
        spec,
        sorted(numbers(radii, "radii", float)),
        numbers(seeds, "seeds", int),
        heldout,
        ensemble_size,
    )
    if server is None:
        with _blaming_option():
            check_spec(specs[0])  # options set what may be wrong
    home = home_of(spec_file, "tune", out)
    with _held(home):
        from modnorm.cli.run import SAME_COMMAND, follow_to_end, lab_for
        from modnorm.client.tuning import Trial, development_prompts, grid_document

        with interruptible(_RESUMES), lab_for(home, server, "tune") as (client, submit):

            def submit_trial(trial: "ExperimentSpec") -> "experiments.Experiment":
                with _blaming_option():
                    return submit(trial)

            accepted: Iterable[experiments.Experiment] = map(submit_trial, specs)
            if server is not None:  # all before the first wait: evaluators share them
                accepted = list(accepted)
            trials = []
            for spec, one in zip(specs, accepted, strict=True):
                ended = follow_to_end(client, one, go_on=SAME_COMMAND)
                if not ended.ensembles:
                    raise EvaluationError(
                        f"{spec.name}: too few candidates are left for an ensemble"
                    )
                trials.append(
                    Trial(
                        radius=spec.method.radius,
                        seed=spec.population.seed,
                        metric=ended.ensembles[0].metric,
                        provenance=ended.provenance,
                    )
                )
        digest, folders = trials[0].provenance.heldout_digest, settings().split_folders
        prompts = development_prompts(specs[0], digest, folders=folders)
        document = grid_document(specs[0], trials, prompts)
        _conclude(document, _grid(document), home)


@contextmanager
def _blaming_option() -> Iterator[None]:
    """Name `--heldout` in errors about the rows that it set."""
    try:
        yield
    except ModnormError as error:
        if error.field and error.field.startswith("task.heldout"):
            error.field = error.field.removeprefix("task.")
        raise


def _plan_trials(
    spec: "ExperimentSpec",
    radii: Sequence[float],
    seeds: Sequence[int],
    heldout: str | None,
    ensemble_size: int | None,
) -> "list[ExperimentSpec]":
    """Return the checked specs of all trials: every radius under every seed."""
    from modnorm.client.tuning import check_development_rows, development_rows, trial_spec
    from modnorm.radius.artifact import check_scales

    check_scales("radii", radii)
    if heldout is None:
        raise InvalidInputError(
            "development rows are missing, and the spec's held-out rows are for the test",
            field="heldout",
            remedy="name other rows: --heldout '{source: dev.jsonl, limit: 100}'",
        )
    rows = development_rows(heldout)
    check_development_rows(spec, rows, folders=settings().split_folders)
    size = ensemble_size or max(spec.population.ensemble_sizes)
    return [
        trial_spec(spec, radius=radius, seed=seed, heldout=rows, ensemble_size=size)
        for radius in radii
        for seed in seeds
    ]


def _grid(document: "GridDocument") -> Rows:
    rows = [
        (
            f"{one.radius:g}",
            percent(one.mean),
            "  ".join(percent(trial.metric) for trial in one.trials),
            "selected" if one.radius == document.radius else "",
        )
        for one in document.radii
    ]
    vote = f"vote of {document.settings.ensemble_size}"
    return (("radius", f"{vote}, mean", "by seed", ""), rows)


def match(
    spec_file: SpecFile,
    *,
    out: Out = None,
    radii: Annotated[
        str, opt("--radii R,R,...", "Radii to try.")
    ] = "0.01,0.02,0.04,0.08,0.16,0.32,0.64",
    sigma: Annotated[float, opt("--sigma NUMBER", "Isotropic noise to match.")] = 0.0005,
    prompts: Annotated[
        int, opt("--prompts NUMBER", "Number of selection rows.", min=1, max=100_000)
    ] = 64,
    candidates: Annotated[
        int, opt("--candidates NUMBER", "Candidates for each radius.", min=1, max=100)
    ] = 25,
    seed: Annotated[
        int, opt("--seed NUMBER", "Population seed of the candidates.", min=0, max=MAX_SEED)
    ] = 42,
) -> None:
    """Choose the radius that acts as strongly as isotropic noise.

    No answers are generated and no labels read. Next-token distributions and hidden states are
    compared on the prompts of the first selection rows. Every radius has the same candidate seeds.
    Model, task, method, profile, pool and noise are those of the spec. The same command resumes
    an interrupted one; with other radii it repeats no measurement. A spec may name the artifact,
    {artifact: DIR/radius.json}, instead of a radius.
    """
    from modnorm.radius.artifact import MatchingSettings, check_count, check_method
    from modnorm.spec import located
    from modnorm.spec_checks import check_search_locally

    spec = read_unsettled_spec(spec_file)
    tried = numbers(radii, "radii", float)
    how = MatchingSettings(
        prompts=prompts,
        candidates=candidates,
        seed=seed,
        pool=spec.population.pool,
        noise=spec.population.noise,
    )
    with located(spec_file):
        check_method(spec, tried, sigma)
        selection = check_search_locally(spec, folders=settings().split_folders)
        if selection is not None:
            check_count(len(selection.rows), prompts)
    home = home_of(spec_file, "match", out)
    with interruptible(_RESUMES), _held(home):
        document = _measure(spec, tried, sigma, how, home)
        from modnorm.radius.functional_matching import choice_shares

        shares = choice_shares(document)
        _conclude(document, _matchings(document, shares), home, choice_shares=shares)


def _measure(
    spec: "ExperimentSpec",
    radii: Sequence[float],
    sigma: float,
    how: "MatchingSettings",
    home: Path,
) -> "MatchingDocument":
    """Measure a matching, with a line when all candidates of a condition are measured."""
    from modnorm.cli.progress import Screen, loading

    with loading("torch"):
        from modnorm.client.matching import make_plan
        from modnorm.radius import functional_matching
    with Screen(stderr()) as screen:

        def show(step: functional_matching.Measurement) -> None:
            screen.show("measuring", step.done, step.total)
            if step.done % how.candidates == 0:
                conditions = f"{step.done // how.candidates}/{step.total // how.candidates}"
                screen.note(f"{conditions}  {step.method} {step.radius:g} measured")

        plan = make_plan(
            spec,
            radii=radii,
            sigma=sigma,
            settings=how,
            client=settings(),
            on_calibration=partial(screen.show, "calibrating"),
        )
        return functional_matching.match(plan, home, on_step=show)


def _matchings(document: "MatchingDocument", shares: Sequence[float]) -> Rows:
    reference = document.reference
    first = "isotropic", f"{reference.radius:g}", f"{reference.kl:.3e}", f"{reference.hidden:.4f}"
    rows = [
        (
            document.method.name,
            f"{one.radius:g}",
            f"{one.kl:.3e}",
            f"{one.hidden:.4f}",
            "-" if one.objective is None else f"{one.objective:.4f}",
            percent(share),
            "selected" if one.radius == document.radius else "",
        )
        for one, share in zip(document.radii, shares, strict=True)
    ]
    headings = ("method", "radius", "KL", "hidden", "J", "chosen in", "")
    return (headings, [(*first, "", "", ""), *rows])


def home_of(spec_file: Path, command: str, out: Path | None) -> Path:
    """Return the directory of an artifact, beside the default directory of the run."""
    return out or Path("runs") / f"{spec_file.stem}-{command}"


@contextmanager
def _held(out: Path) -> Iterator[None]:
    """Lock the directory of an artifact, which must not be a run directory."""
    from modnorm.client.run_directory import RunDirectory, hold

    RunDirectory(out).check_holds_no_run()
    settings().check_cache()
    with hold(out):
        yield


def _conclude(
    document: "GridDocument | MatchingDocument", shown: Rows, out: Path, **figures: object
) -> None:
    """Write `radius.json`, store the artifact, show it; `figures` are only shown."""
    from modnorm.radius.artifact import GridRadius, RadiusArtifact, keep_artifact

    artifact, file = RadiusArtifact.of(document), out / "radius.json"
    write_file(file, artifact.to_json().encode())
    keep_artifact(artifact, settings().cache)
    content = json.loads(artifact.to_json())
    if emit_json({"digest": artifact.digest, "artifact": content, **figures}):
        return
    echo_table(*shown)
    echo(f"radius {document.radius:g}  {artifact.digest}")
    say(f"written to {file}; a spec names it as radius: {{artifact: {file}}}")
    tried = [one.radius for one in document.radii]
    means = {one.mean for one in document.radii if isinstance(one, GridRadius)}
    if len(tried) > 1 and len(means) == 1:
        note("all radii are equal: more candidates, rows or tokens are needed to choose one")
    elif len(tried) > 1 and document.radius in {tried[0], tried[-1]}:
        end = "smallest" if document.radius == tried[0] else "largest"
        note(
            f"{document.radius:g} is the {end} radius that was tried; a wider grid may find better"
        )
