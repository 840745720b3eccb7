"""The work of `modnorm tune`: run the trials, here or in a lab, and compare them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.cli.console import percent, table
from modnorm.cli.experiment import SAME_COMMAND, follow_to_end, lab_here, run_experiment
from modnorm.cli.interruption import interruptible
from modnorm.cli.options import connect, settings
from modnorm.cli.radius import RESUMES, conclude
from modnorm.client.development import development_prompts
from modnorm.client.resumption import resume_or_submit_shared
from modnorm.client.tuning import Trial, grid_document
from modnorm.errors import EvaluationError
from modnorm.radius.artifact_schema import GridDocument
from modnorm.spec import ExperimentSpec
from modnorm.v1 import experiment_pb2 as experiments

if TYPE_CHECKING:
    from rich.table import Table

_PREFIX = "tune"


def try_all(
    specs: Sequence[ExperimentSpec], home: Path, server: str | None, *, quiet: bool, as_json: bool
) -> None:
    """Run all trials, and write and show the artifact that they make.

    The caller has locked `home`. Without a server the trials run in this process.

    Raises:
        EvaluationError: a trial failed.
    """
    trials = (
        _embedded(specs, home, quiet=quiet)
        if server is None
        else _in_lab(specs, server, quiet=quiet)
    )
    digest, folders = trials[0].provenance.heldout_digest, settings().split_folders
    prompts = development_prompts(specs[0], digest, folders=folders)
    document = grid_document(specs[0], trials, prompts)
    conclude(document, _table(document), home, as_json=as_json)


def _embedded(specs: Sequence[ExperimentSpec], out: Path, *, quiet: bool) -> list[Trial]:
    with (
        interruptible(RESUMES),
        lab_here(out, quiet=quiet) as client,
    ):
        return [trial_of(spec, run_experiment(client, spec, quiet=quiet)) for spec in specs]


def _in_lab(specs: Sequence[ExperimentSpec], server: str, *, quiet: bool) -> list[Trial]:
    """Submit all trials before the first wait, so that the evaluators share them."""
    with (
        connect(server) as client,
        interruptible("the trials continue in the lab; the same command finds them"),
    ):
        accepted = [resume_or_submit_shared(client, spec, _PREFIX) for spec in specs]
        return [
            trial_of(spec, follow_to_end(client, experiment, quiet=quiet, go_on=SAME_COMMAND))
            for spec, experiment in zip(specs, accepted, strict=True)
        ]


def trial_of(spec: ExperimentSpec, ended: experiments.Experiment) -> Trial:
    """Return the trial that an ended experiment measured.

    Raises:
        EvaluationError: too few candidates are left for an ensemble.
    """
    if not ended.ensembles:
        raise EvaluationError(f"{spec.name}: too few candidates are left for an ensemble")
    return Trial(
        radius=spec.method.radius,
        seed=spec.population.seed,
        metric=ended.ensembles[0].metric,
        provenance=ended.provenance,
    )


def _table(document: GridDocument) -> "Table":
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
    return table(("radius", f"{vote}, mean", "by seed", ""), rows)
